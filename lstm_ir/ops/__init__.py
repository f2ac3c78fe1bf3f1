"""The op families. Importing this registers every op; builders are re-exported under one roof."""

from __future__ import annotations

# isort: off
from lstm_ir.ir.leaf import constant, input, parameter, weight
from lstm_ir.ir.operators import bind
from lstm_ir.ops.primitive.size import dim, in_range, size
from lstm_ir.ops.primitive import elementwise_ops
from lstm_ir.ops.primitive.elementwise import (
    abs, add, bitcast_convert, ceil, clamp, compare, convert, cos, divide, equal, erf, exp, expm1,
    floor, greater, greater_equal, is_finite, less, less_equal, log, log1p, logical_and,
    logical_not, logical_or, logical_xor, logistic, maximum, minimum, multiply, negate, not_equal,
    power, remainder, round, rsqrt, select, shift_left, shift_right_arithmetic, shift_right_logical,
    sign, sin, sqrt, subtract, tanh,
)  # fmt: skip
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim, broadcast_to
from lstm_ir.ops.primitive.shape import (
    concat, expand_dims, reshape, reverse, squeeze, stack, swapaxes, transpose,
)  # fmt: skip
from lstm_ir.ops.primitive.window import dynamic_slice, dynamic_update_slice, pad, slice
from lstm_ir.ops.primitive.indexing import index
from lstm_ir.ops.primitive.linear import dot, dot_general, matmul
from lstm_ir.ops.primitive.fill import arange, full, iota, ones, zeros, zeros_like
from lstm_ir.ops.primitive.reduce import argmax, cumsum, max, mean, min, sum
from lstm_ir.ops.primitive.gather import scatter_add, take
from lstm_ir.ops.nn.softmax import log_softmax, softmax
from lstm_ir.ops.core.convolution import conv1d, conv2d
from lstm_ir.ops.core.convolution_transpose import conv_transpose1d, conv_transpose2d
from lstm_ir.ops.core.pool import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from lstm_ir.ops.nn.dropout import dropout, random_key
from lstm_ir.ops.nn.layers import dense, embedding, layer_norm
from lstm_ir.ops.nn.losses import cross_entropy, mse
from lstm_ir.ops.scan.builder import scan
from lstm_ir.ops.nn.ctc import ctc_loss
from lstm_ir.ops.core.gru import gru
from lstm_ir.ops.core.lstm import lstm
from lstm_ir.ops.core.rnn import rnn
from lstm_ir.ops.nn.lstm_variants import layer_norm_lstm, recurrent_dropout_lstm, zoneout_lstm
from lstm_ir.ops.core.gru_grad import gru_grad
from lstm_ir.ops.core.lstm_grad import lstm_grad
from lstm_ir.ops.core.rnn_grad import rnn_grad
from lstm_ir.ops.nn import threefry
from lstm_ir.ops import cudnn, mps, tf
# isort: on

__all__ = [
    "abs", "add", "arange", "argmax", "avg_pool1d", "avg_pool2d", "bitcast_convert",
    "broadcast_in_dim", "broadcast_to", "ceil", "clamp", "compare", "concat", "constant",
    "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "convert", "cos",
    "cross_entropy", "ctc_loss", "cumsum", "dense", "dim", "divide", "dot", "dot_general",
    "dropout", "dynamic_slice", "dynamic_update_slice", "embedding", "equal", "erf", "exp",
    "expand_dims", "expm1", "floor", "full", "greater", "greater_equal", "gru", "gru_grad",
    "in_range", "index", "input", "iota", "is_finite", "layer_norm", "layer_norm_lstm", "less",
    "less_equal", "log", "log1p", "log_softmax", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logistic", "lstm", "lstm_grad", "matmul", "max", "max_pool1d", "max_pool2d",
    "maximum", "mean", "min", "minimum", "mse", "multiply", "negate", "not_equal", "ones",
    "pad", "parameter", "power", "random_key", "recurrent_dropout_lstm", "remainder", "reshape",
    "reverse", "rnn", "rnn_grad", "round", "rsqrt", "scan", "scatter_add", "select",
    "shift_left", "shift_right_arithmetic", "shift_right_logical", "sign", "sin", "size",
    "slice", "softmax", "sqrt", "squeeze", "stack", "subtract", "sum", "swapaxes", "take",
    "tanh", "transpose", "weight", "zeros", "zeros_like", "zoneout_lstm",
]  # fmt: skip

bind({name: globals()[name] for name in __all__})
