"""What each op means: importing this package fills the table."""

from lstm_ir.importers.onnx.handlers import (  # noqa: F401
    arithmetic,
    attention,
    control,
    fill,
    indices,
    layers,
    loops,
    pads,
    products,
    quantized,
    quantized_lstm,
    recurrent,
    reductions,
    selections,
    sequences,
    shapes,
    windows,
)
