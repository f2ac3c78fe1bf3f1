"""What each layer means: importing this package fills the table."""

from lstm_ir.importers.keras.handlers import (  # noqa: F401
    activations,
    convolutions,
    dense,
    dropout,
    merges,
    normalisation,
    operations,
    pools,
    recurrent,
    shapes,
    wrappers,
)
