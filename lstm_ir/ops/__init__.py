"""The op families. Importing this registers every op; builders are re-exported under one roof."""

from __future__ import annotations

# isort: off
from lstm_ir.ir.leaf import constant, input, parameter, weight
from lstm_ir.ir.operators import bind
from lstm_ir.ops.primitive.size import dim, in_range, size
from lstm_ir.ops.primitive import elementwise_ops
from lstm_ir.ops.primitive.elementwise import (
    abs, acos, add, asin, atan, atan2, bitcast_convert, ceil, clamp, compare, convert, cos, divide, equal, erf, exp,
    expm1, floor, greater, greater_equal, is_finite, less, less_equal, log, log1p, logical_and,
    logical_not, logical_or, logical_xor, logistic, maximum, minimum, multiply, negate, not_equal,
    power, reciprocal, remainder, round, rsqrt, select, shift_left, shift_right_arithmetic, shift_right_logical,
    sign, sin, sqrt, square, subtract, tanh,
)  # fmt: skip
from lstm_ir.ops.primitive.division import floor_divide, mod
from lstm_ir.ops.primitive.broadcast import broadcast_in_dim, broadcast_to
from lstm_ir.ops.primitive.shape import (
    concat, expand_dims, reshape, reverse, squeeze, stack, swapaxes, transpose,
)  # fmt: skip
from lstm_ir.ops.primitive.window import dynamic_slice, dynamic_update_slice, slice
from lstm_ir.ops.primitive.padding import pad
from lstm_ir.ops.primitive.indexing import index
from lstm_ir.ops.primitive.linear import dot, dot_general, matmul
from lstm_ir.ops.primitive.fill import arange, full, iota, ones, zeros, zeros_like
from lstm_ir.ops.primitive.reduce import argmax, cumsum, max, mean, min, sum
from lstm_ir.ops.primitive.gather import scatter_add, take
from lstm_ir.ops.primitive.activations import (
    celu, elu, gelu, hard_sigmoid, hard_swish, leaky_relu, log_sigmoid, mish, prelu, relu, selu,
    sigmoid, silu, softplus, softsign, thresholded_relu,
)  # fmt: skip
from lstm_ir.ops.primitive.custom_gradient import custom_vjp, stop_gradient
from lstm_ir.ops.primitive.along_axis import (
    gather_elements, gather_nd, hardmax, one_hot, put_along_axis, reverse_sequence, scatter_nd, take_along_axis,
)  # fmt: skip
from lstm_ir.ops.primitive.blocks import depth_to_space, space_to_depth
from lstm_ir.ops.primitive.clipping import clip, is_inf, is_nan, nan_to_num
from lstm_ir.ops.primitive.einsum import einsum, outer
from lstm_ir.ops.primitive.rearrange import eye, flip, repeat, roll, split, tile, tril, triu, where
from lstm_ir.ops.primitive.statistics import all, any, argmin, logsumexp, lp_normalization, norm, std, var
from lstm_ir.ops.nn.softmax import log_softmax, softmax
from lstm_ir.ops.core.convolution import conv1d, conv2d
from lstm_ir.ops.core.convolution_transpose import conv_transpose1d, conv_transpose2d
from lstm_ir.ops.core.adaptive_pool import (
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_max_pool1d, adaptive_max_pool2d,
)  # fmt: skip
from lstm_ir.ops.core.pool import avg_pool1d, avg_pool2d, max_pool1d, max_pool2d
from lstm_ir.ops.nn.dropout import dropout, random_key
from lstm_ir.ops.nn.layers import dense, embedding, layer_norm
from lstm_ir.ops.nn.quantized import dynamic_quantize_matmul
from lstm_ir.ops.nn.attention import attention, multi_head_attention
from lstm_ir.ops.nn.normalisation import batch_norm, group_norm, instance_norm, rms_norm
from lstm_ir.ops.nn.losses import cross_entropy, mse
from lstm_ir.ops.scan.builder import scan
from lstm_ir.ops.scan.order import argsort, sort, top_k
from lstm_ir.ops.scan.products import cumprod, prod
from lstm_ir.ops.nn.random import (
    random_bernoulli, random_categorical, random_gumbel, random_normal, random_permutation, random_uniform,
)  # fmt: skip
from lstm_ir.ops.nn.sampling import sample
from lstm_ir.ops.nn.crf import crf_decode, crf_loss
from lstm_ir.ops.nn.ctc import ctc_loss
from lstm_ir.ops.core.gru import gru
from lstm_ir.ops.core.lstm import lstm
from lstm_ir.ops.core.rnn import rnn
from lstm_ir.ops.nn.stacks import gru_stack, lstm_stack
from lstm_ir.ops.nn.lstm_variants import layer_norm_lstm, recurrent_dropout_lstm, zoneout_lstm
from lstm_ir.ops.core.gru_grad import gru_grad
from lstm_ir.ops.core.lstm_grad import lstm_grad
from lstm_ir.ops.core.rnn_grad import rnn_grad
from lstm_ir.ops.nn import threefry
from lstm_ir.ops import cudnn, foreign_names, mps, tf
from lstm_ir.ops.keywords import told
# isort: on

__all__ = [
    "abs", "acos", "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_max_pool1d", "adaptive_max_pool2d", "add",
    "all", "any", "arange", "argmax", "argmin", "argsort", "asin", "atan", "atan2", "attention", "avg_pool1d",
    "avg_pool2d", "batch_norm", "bitcast_convert", "broadcast_in_dim", "broadcast_to", "ceil", "celu", "clamp", "clip",
    "compare", "concat", "constant", "conv1d", "conv2d", "conv_transpose1d", "conv_transpose2d", "convert",
    "cos", "crf_decode", "crf_loss", "cross_entropy", "ctc_loss", "cumprod", "cumsum", "custom_vjp", "dense",
    "depth_to_space", "dim", "divide", "dot", "dot_general", "dropout", "dynamic_quantize_matmul", "dynamic_slice",
    "dynamic_update_slice", "einsum", "elu", "embedding", "equal", "erf", "exp", "expand_dims", "expm1", "eye",
    "flip", "floor", "floor_divide", "full", "gather_elements", "gather_nd", "gelu", "greater", "greater_equal",
    "group_norm", "gru", "gru_grad", "gru_stack", "hard_sigmoid", "hard_swish", "hardmax", "in_range", "index", "input",
    "instance_norm", "iota", "is_finite", "is_inf", "is_nan", "layer_norm", "layer_norm_lstm", "leaky_relu", "less",
    "less_equal", "log", "log1p", "log_sigmoid", "log_softmax", "logical_and", "logical_not", "logical_or",
    "logical_xor", "logistic", "logsumexp", "lp_normalization", "lstm", "lstm_grad", "lstm_stack", "matmul", "max",
    "max_pool1d", "max_pool2d", "maximum", "mean", "min", "minimum", "mish", "mod", "mse", "multi_head_attention",
    "multiply", "nan_to_num", "negate", "norm", "not_equal", "one_hot", "ones", "outer", "pad", "parameter",
    "power", "prelu", "prod", "put_along_axis", "random_bernoulli", "random_categorical", "random_gumbel",
    "random_key", "random_normal", "random_permutation", "random_uniform", "reciprocal", "recurrent_dropout_lstm",
    "relu", "remainder", "repeat", "reshape", "reverse", "reverse_sequence", "rms_norm", "rnn", "rnn_grad", "roll",
    "round", "rsqrt", "sample", "scan", "scatter_add", "scatter_nd", "select", "selu", "shift_left",
    "shift_right_arithmetic", "shift_right_logical", "sigmoid", "sign", "silu", "sin", "size", "slice", "softmax",
    "softplus", "softsign", "sort", "space_to_depth", "split", "sqrt", "square", "squeeze", "stack", "std",
    "stop_gradient", "subtract", "sum", "swapaxes", "take", "take_along_axis", "tanh", "thresholded_relu", "tile",
    "top_k", "transpose", "tril", "triu", "var", "weight", "where", "zeros", "zeros_like", "zoneout_lstm",
]  # fmt: skip

globals().update({name: told(globals()[name]) for name in __all__})
bind({name: globals()[name] for name in __all__}, foreign_names)
