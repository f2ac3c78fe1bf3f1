"""What each op means: importing this package fills the table."""

from lstm_ir.importers.torch.handlers import (  # noqa: F401
    activations,
    arithmetic,
    cells,
    fill,
    indices,
    layers,
    loops,
    packed,
    products,
    random,
    recurrent,
    reductions,
    shapes,
    windows,
)
