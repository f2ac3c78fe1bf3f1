"""What each op means: importing this package fills the table."""

from lstm_ir.importers.tensorflow.handlers import (  # noqa: F401
    arithmetic,
    blocks,
    control,
    fill,
    indices,
    layers,
    lists,
    products,
    recurrent,
    reductions,
    shapes,
    spectra,
    windows,
)
