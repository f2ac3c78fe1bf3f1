"""Every op of PyTorch that `from_torch` takes, called by itself.

Its operands are parts of x and y, f32[2,3,4], i, i64[2,3,4] of 0 to 3, and m, bool[2,3,4].
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch

Case = Callable[[Any, Any], Any]  # of the op, and of x, y, i, m by name
CASES: dict[str, list[Case]] = {}
INF, NAN = float("inf"), float("nan")
EDGES = torch.tensor([-INF, -30.0, -2.5, -1.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.0, 1.5, 2.5, 30.0, INF, NAN])


def _all(names: str, *cases: Case, of: str = "default") -> None:
    """The same calls of several ops; a name with its overload after a dot, or without."""
    for word in names.split():
        CASES[f"aten.{word if '.' in word else f'{word}.{of}'}"] = list(cases)


def _rounded(case: Case, mode: str | None) -> Case:
    return lambda op, v: case(partial(op, rounding_mode=mode), v)


UNARY = """abs atan ceil celu clone cos cosh elu erf exp exp2 expm1 floor frac gelu hardshrink hardsigmoid
hardswish hardtanh leaky_relu log_sigmoid mish neg positive relu relu6 round selu sigmoid sign silu sin sinh softplus
softshrink square tan tanh trunc nan_to_num isfinite isinf isnan logical_not"""
POSITIVE = "log log10 log1p log2 reciprocal rsqrt sqrt"
INSIDE = "acos asin"
COMPARED = "eq ge gt le lt ne"
MOVED = """alias contiguous detach detach_ detach_copy lift_fresh lift_fresh_copy resolve_conj resolve_neg"""

_all(UNARY, lambda op, v: op(v.x * 2))
_all(POSITIVE, lambda op, v: op(v.x.abs() + 0.3))
_all(INSIDE, lambda op, v: op(v.x.tanh() * 0.9))
_all("bitwise_not", lambda op, v: op(v.i), lambda op, v: op(v.m))
_all("atan2 maximum minimum logaddexp", lambda op, v: op(v.x, v.y))
_all("max.other min.other", lambda op, v: op(v.x, v.y), lambda op, v: op(v.i, v.i.flip(0)))
for _word in COMPARED.split():
    _all(f"{_word}.Tensor", lambda op, v: op(v.x, v.y), lambda op, v: op(v.i, v.i.flip(0)), lambda op, v: op(v.i, v.x))
    _all(f"{_word}.Scalar", lambda op, v: op(v.x, 0.25), lambda op, v: op(v.i, 1), lambda op, v: op(v.i, 1.5))
for _word in ("and", "or", "xor"):
    _all(
        f"bitwise_{_word}.Tensor __{_word}__.Tensor",
        lambda op, v: op(v.i, v.i.flip(0)),
        lambda op, v: op(v.m, v.m.flip(0)),
    )
    _all(f"bitwise_{_word}.Scalar __{_word}__.Scalar", lambda op, v: op(v.i, 2), lambda op, v: op(v.m, True))
    _all(f"logical_{_word}", lambda op, v: op(v.m, v.m.flip(0)), lambda op, v: op(v.x.round(), v.i))

_all("add.Tensor sub.Tensor rsub.Tensor", lambda op, v: op(v.x, v.y, alpha=2), lambda op, v: op(v.i, v.y),
     lambda op, v: op(v.i, v.i.flip(0), alpha=3))  # fmt: skip
_all(
    "add.Scalar sub.Scalar rsub.Scalar",
    lambda op, v: op(v.x, 2, 3),
    lambda op, v: op(v.i, 1.5),
    lambda op, v: op(v.i, 2),
)
_all("mul.Tensor", lambda op, v: op(v.x, v.y), lambda op, v: op(v.i, v.x), lambda op, v: op(v.m, v.m.flip(0)))
_all("mul.Scalar", lambda op, v: op(v.x, 2), lambda op, v: op(v.i, 2.5), lambda op, v: op(v.i, 3))
_all("div.Tensor true_divide.Tensor", lambda op, v: op(v.x, v.y.exp()), lambda op, v: op(v.i, v.i.flip(0) + 1))
_all("div.Scalar", lambda op, v: op(v.x, 3), lambda op, v: op(v.i, 2))
_whole: list[Case] = [
    lambda op, v: op(v.x * 3, v.y),
    lambda op, v: op(v.i - 2, v.i.flip(0) * 2 - 3),
    lambda op, v: op(v.i - 2, v.y),
]
_number: list[Case] = [
    lambda op, v: op(v.x * 3, 0.7),
    lambda op, v: op(v.i - 2, -2),
    lambda op, v: op(v.x, -2),
    lambda op, v: op(v.i, 1.5),
]
_all("fmod.Tensor remainder.Tensor floor_divide", *_whole)
_all("fmod.Scalar remainder.Scalar floor_divide.Scalar", *_number)
_modes = ("floor", "trunc", None)
CASES["aten.div.Tensor_mode"] = [_rounded(case, mode) for mode in _modes for case in _whole]
CASES["aten.div.Scalar_mode"] = [_rounded(case, mode) for mode in _modes for case in _number]
_all("pow.Scalar", lambda op, v: op(1.7, v.x), lambda op, v: op(2, v.x))
_all("pow.Tensor_Scalar", *[lambda op, v, n=n: op(v.x.abs() + 0.1, n) for n in (0, 1, 2, 3, -1, 0.5, 1.7)],
     lambda op, v: op(v.x, 3), lambda op, v: op(v.i, 3), lambda op, v: op(v.i, 0))  # fmt: skip
_all("pow.Tensor_Tensor", lambda op, v: op(v.x.abs() + 0.1, v.y), lambda op, v: op(v.x.abs() + 0.1, v.i))
_all("addcmul addcdiv", lambda op, v: op(v.x, v.y, v.x.exp(), value=0.5))
_all("lerp.Scalar", lambda op, v: op(v.x, v.y, 0.3))
_all("lerp.Tensor", lambda op, v: op(v.x, v.y, v.x.sigmoid()))
_all("clamp", lambda op, v: op(v.x, -0.5, 0.5), lambda op, v: op(v.x, max=0.2), lambda op, v: op(v.i, 1, 2))
_all("clamp.Tensor", lambda op, v: op(v.x, v.y - 0.5, v.y + 0.5), lambda op, v: op(v.x, None, v.y))
_all("clamp_max clamp_min", lambda op, v: op(v.x, 0.3), lambda op, v: op(v.i, 2))
_all("clamp_max.Tensor clamp_min.Tensor", lambda op, v: op(v.x, v.y))
_all("where.self", lambda op, v: op(v.m, v.x, v.y), lambda op, v: op(v.m, v.x, v.i))
_all("where.ScalarSelf", lambda op, v: op(v.m, 2.0, v.y))
_all("where.ScalarOther", lambda op, v: op(v.m, v.x, 2))
_all("where.Scalar", lambda op, v: op(v.m, 1.5, 2.5), lambda op, v: op(v.m, 1, 2))
_all("masked_fill.Scalar", lambda op, v: op(v.x, v.m, 2.5), lambda op, v: op(v.i, v.m, 2))
_all("masked_fill.Tensor", lambda op, v: op(v.x, v.m, v.y.sum()))
_all("threshold", lambda op, v: op(v.x, 0.2, -1.0))
_all("_prelu_kernel", lambda op, v: op(v.x, v.y[:1, :, :1]))
_all("prelu", lambda op, v: op(v.x, v.y[0, :, 0]), lambda op, v: op(v.x, v.y[0, 0, :1]))
_all("glu", lambda op, v: op(v.x, -1), lambda op, v: op(v.x.transpose(1, 2), 1))
_all("softmax.int log_softmax.int", lambda op, v: op(v.x, -1), lambda op, v: op(v.x, 1, torch.float64))
_all("_softmax _log_softmax", lambda op, v: op(v.x, 1, False))

_all(MOVED, lambda op, v: op(v.x * 2))
_all(
    "_to_copy",
    lambda op, v: op(v.x, dtype=torch.float64),
    lambda op, v: op(v.i, dtype=torch.float32),
    lambda op, v: op(v.x * 3, dtype=torch.int64),
)
_all("to.dtype", lambda op, v: op(v.x, torch.float64), lambda op, v: op(v.m, torch.float32))
_all("to.device", lambda op, v: op(v.x, torch.device("cpu"), torch.float64))
_all("to.dtype_layout", lambda op, v: op(v.x, dtype=torch.float64))
_all("to.other type_as", lambda op, v: op(v.i, v.x))

_all("sum mean prod max min std var", lambda op, v: op(v.x))
_all("all any", lambda op, v: op(v.m), lambda op, v: op(v.i), lambda op, v: op(v.m.logical_or(v.i >= 0)))
_all("all.dim any.dim", lambda op, v: op(v.m, 1, True), lambda op, v: op(v.i, -1))
_all("all.dims any.dims", lambda op, v: op(v.m, [0, 2]), lambda op, v: op(v.m, [1], True))
_all(
    "amax amin",
    lambda op, v: op(v.x, [1]),
    lambda op, v: op(v.x, [0, 2], True),
    lambda op, v: op(v.x),
    lambda op, v: op(v.i, [1]),
)
_all("argmax argmin", lambda op, v: op(v.x), lambda op, v: op(v.x, 1), lambda op, v: op(v.i, 2, True))
_all("max.dim min.dim", lambda op, v: op(v.x, 1), lambda op, v: op(v.i, -1, True))
_all("sum.dim_IntList mean.dim", lambda op, v: op(v.x, [0, 2]), lambda op, v: op(v.x, [1], True), 
     lambda op, v: op(v.x, None), lambda op, v: op(v.i, [1], dtype=torch.float32))  # fmt: skip
_all("prod.dim_int", lambda op, v: op(v.x, 1), lambda op, v: op(v.i, 2, True))
_all("std.correction var.correction std_mean.correction var_mean.correction", lambda op, v: op(v.x, [1], correction=0),
     lambda op, v: op(v.x, None, correction=2), lambda op, v: op(v.x, [0, 2], keepdim=True))  # fmt: skip
_all("std_mean var_mean", lambda op, v: op(v.x), lambda op, v: op(v.x, False))
_all(
    "std.dim var.dim std_mean.dim var_mean.dim", lambda op, v: op(v.x, [1]), lambda op, v: op(v.x, [0, 2], False, True)
)
_all("logsumexp", lambda op, v: op(v.x, [1]), lambda op, v: op(v.x, [0, 2], True))
_all("norm.Scalar", lambda op, v: op(v.x, 1), lambda op, v: op(v.x))
_all("norm.ScalarOpt_dim", lambda op, v: op(v.x, 2, [1]), lambda op, v: op(v.x, INF, [2], True))
_all("linalg_vector_norm", *[lambda op, v, n=n: op(v.x, n, [1], True) for n in (0, 1, 2, INF)])
_all("cumsum cumprod", lambda op, v: op(v.x, 1), lambda op, v: op(v.i, 0))
_all("diff", lambda op, v: op(v.x), lambda op, v: op(v.i, 1, 1))
_all("cosine_similarity", lambda op, v: op(v.x, v.y), lambda op, v: op(v.x, v.y[:1], -1))
_all("sort", lambda op, v: op(v.x, 1, True), lambda op, v: op(v.x))
_all("sort.stable", lambda op, v: op(v.i, stable=True, dim=2, descending=True))
_all("argsort", lambda op, v: op(v.x, 1))
_all("argsort.stable", lambda op, v: op(v.i, stable=True, dim=1, descending=True), lambda op, v: op(v.i, stable=True))
_all("topk", lambda op, v: op(v.x, 2, 2), lambda op, v: op(v.x, 2, 1, False))

_all("addmm", lambda op, v: op(v.y[0, 0, :3], v.x[0], v.y[1].t(), beta=0.5, alpha=2))
_all("addmv", lambda op, v: op(v.y[0, :, 0], v.x[0], v.y[1, 0], beta=0.5, alpha=2))
_all("addbmm", lambda op, v: op(v.y[0, :, :3], v.x, v.y.transpose(1, 2), beta=0.5, alpha=2))
_all("baddbmm", lambda op, v: op(v.y[:, :, :3], v.x, v.y.transpose(1, 2), beta=0.5, alpha=2))
_all("bmm matmul", lambda op, v: op(v.x, v.y.transpose(1, 2)))
_all("mm", lambda op, v: op(v.x[0], v.y[0].t()))
_all("mv", lambda op, v: op(v.x[0], v.y[0, 0]))
_all("dot", lambda op, v: op(v.x[0, 0], v.y[0, 0]))
_all("outer ger", lambda op, v: op(v.x[0, 0], v.y[0, :, 0]))
_all("linear", lambda op, v: op(v.x, v.y[0], v.y[1, :, 0]), lambda op, v: op(v.x, v.y[0]))
_all("bilinear", lambda op, v: op(v.x[0], v.x[1], v.y[:, :1].transpose(1, 2) @ v.y[:, 1:2], v.y[:, 0, 0]))
_all("einsum", lambda op, v: op("abc,adc->bd", [v.x, v.y]))
_all("scaled_dot_product_attention", lambda op, v: op(v.x, v.y, v.x), lambda op, v: op(v.x, v.y, v.x, None, 0.0, True),
     lambda op, v: op(v.x, v.y, v.x, v.y[:, :, :3], scale=0.3))  # fmt: skip

_all(
    "reshape view _reshape_copy _unsafe_view view_copy", lambda op, v: op(v.x, [2, 12]), lambda op, v: op(v.x, [-1, 2])
)
_all("reshape_as view_as", lambda op, v: op(v.x, v.y.reshape(6, 4)))
_all("permute permute_copy", lambda op, v: op(v.x, [2, 0, -2]))
_all("transpose.int swapaxes swapdims", lambda op, v: op(v.x, 0, -1))
_all("t", lambda op, v: op(v.x[0]))
_all("numpy_T", lambda op, v: op(v.x[0]))
_all("mT", lambda op, v: op(v.x))
_all("movedim.int", lambda op, v: op(v.x, 0, -1))
_all("movedim.intlist", lambda op, v: op(v.x, [0, 1], [2, 0]))
_all("flatten.using_ints", lambda op, v: op(v.x, 1, -1), lambda op, v: op(v.x))
_all("unflatten.int", lambda op, v: op(v.x, 2, [2, -1]))
_all("squeeze", lambda op, v: op(v.x[:, :1]))
_all("squeeze.dim", lambda op, v: op(v.x[:, :1], 1), lambda op, v: op(v.x, 1))
_all("squeeze.dims", lambda op, v: op(v.x[:1, :, :1], [0, 2]))
_all("unsqueeze", lambda op, v: op(v.x, -1), lambda op, v: op(v.x, 1))
_all("expand expand_copy", lambda op, v: op(v.x[:, :1], [2, 5, 4]), lambda op, v: op(v.x[0], [3, -1, 4]))
_all("broadcast_to", lambda op, v: op(v.x[:, :1], [2, 5, 4]))
_all("expand_as", lambda op, v: op(v.x[:, :1], v.y))
_all("repeat tile", lambda op, v: op(v.x, [2, 1, 2]), lambda op, v: op(v.x[0], [2, 1, 1]))
_all("repeat_interleave.self_int", lambda op, v: op(v.x, 2, 1))
_all("cat concat concatenate", lambda op, v: op([v.x, v.y[:, :2]], 1), lambda op, v: op([v.x, v.i]))
_all("stack", lambda op, v: op([v.x, v.y], -1))
_all("hstack vstack", lambda op, v: op([v.x, v.y]))
_all("chunk tensor_split.sections", lambda op, v: op(v.x, 2, 1), lambda op, v: op(v.x, 3, 2))
_all("split.Tensor", lambda op, v: op(v.x, 3, 2))
_all("split.sizes split_with_sizes", lambda op, v: op(v.x, [1, 3], 2))
_all("unbind.int", lambda op, v: op(v.x, 1))
_all("select.int", lambda op, v: op(v.x, 1, -1))
_all("slice.Tensor", lambda op, v: op(v.x, 2, 1, -1, 2), lambda op, v: op(v.x, 1))
_all("narrow", lambda op, v: op(v.x, 2, 1, 2))
_all("select_scatter", lambda op, v: op(v.x, v.y[:, 0], 1, 2))
_all("slice_scatter", lambda op, v: op(v.x, v.y[:, :, :2], 2, 1, 3))
_all("diagonal diagonal_copy", lambda op, v: op(v.x[:, :, :3], 0, 1, 2))
_all("unfold", lambda op, v: op(v.x, 2, 2, 1))
_all("flip", lambda op, v: op(v.x, [0, 2]))
_all("roll", lambda op, v: op(v.x, [1, -1], [1, 2]), lambda op, v: op(v.x, [5]))
_all("tril triu", lambda op, v: op(v.x), lambda op, v: op(v.x, -1), lambda op, v: op(v.x, 1))
_all("constant_pad_nd", lambda op, v: op(v.x, [1, 2, 0, 1], 0.5), lambda op, v: op(v.x, [-1, 0]))
_all(
    "pad",
    lambda op, v: op(v.x, [1, 2]),
    lambda op, v: op(v.x, [1, 2], "reflect"),
    lambda op, v: op(v.x, [1, 2], "constant", 2.0),
)
_all("reflection_pad1d replication_pad1d", lambda op, v: op(v.x, [1, 2]))
_all("reflection_pad2d replication_pad2d", lambda op, v: op(v.x[:, None], [1, 2, 1, 0]))

_all("gather", lambda op, v: op(v.x, 2, v.i), lambda op, v: op(v.x, 1, v.i[:, :2] % 3))
_all("take_along_dim", lambda op, v: op(v.x, v.i, 2))
_all("index_select", lambda op, v: op(v.x, 2, v.i[0, 0]))
_all("index.Tensor", lambda op, v: op(v.x, [None, None, v.i[0]]), lambda op, v: op(v.x, [v.i[0, 0] % 2, v.i[0, 1] % 3]))
_all(
    "index_put",
    lambda op, v: op(v.x, [torch.tensor([1, 0])], v.y),
    lambda op, v: op(v.x, [v.i[0, 0] % 2, v.i[0, 1] % 3], v.y.detach().sum()),
    lambda op, v: op(v.x, [v.i[0, 0] % 2], v.y[:1], True),
)
_all("index_add", lambda op, v: op(v.x, 2, v.i[0, 0], v.y, alpha=2))
_all("index_copy", lambda op, v: op(v.x, 1, torch.tensor([2, 0]), v.y[:, :2]))
_all("index_fill.int_Scalar", lambda op, v: op(v.x, 2, v.i[0, 0], 1.5))
_all("scatter.src", lambda op, v: op(v.x, 2, torch.tensor([[[3, 0]]]).expand(2, 3, 2), v.y[:, :, :2]))
_all("scatter.value", lambda op, v: op(v.x, 2, v.i, 1.5))
_all("scatter_add", lambda op, v: op(v.x, 2, v.i, v.y))
_all("embedding", lambda op, v: op(v.y[0], v.i[0] % 3), lambda op, v: op(v.y[0], v.i[0] % 3, 1))
_all("one_hot", lambda op, v: op(v.i, 5))

_all("arange", lambda op, v: op(5), lambda op, v: op(5, dtype=torch.float32))
_all("arange.start", lambda op, v: op(2, 5), lambda op, v: op(0.5, 3.0))
_all("arange.start_step", lambda op, v: op(9, 2, -3), lambda op, v: op(0.0, 1.0, 0.25))
_all("eye", lambda op, v: op(3))
_all("eye.m", lambda op, v: op(3, 4))
_all("zeros ones", lambda op, v: op([2, 3]), lambda op, v: op([2], dtype=torch.int64))
_all("full", lambda op, v: op([2, 3], 1.5), lambda op, v: op([2], 2))
_all("zeros_like ones_like", lambda op, v: op(v.x), lambda op, v: op(v.x, dtype=torch.int64))
_all("full_like", lambda op, v: op(v.x, 2.5), lambda op, v: op(v.i, 2))
_all("new_zeros new_ones", lambda op, v: op(v.x, [2, 3]))
_all("new_full", lambda op, v: op(v.x, [2, 3], 2.5))
_all("fill.Scalar", lambda op, v: op(v.x, 2.5))
_all("fill.Tensor", lambda op, v: op(v.x, v.y.sum()))
_all("scalar_tensor", lambda op, v: op(2.5) + v.x)
_all("empty.memory_format", lambda op, v: op([2, 3, 4]).fill_(2.0) + v.x)
_all("empty_like", lambda op, v: op(v.x).fill_(2.0) + v.x)
_all("new_empty", lambda op, v: op(v.x, [3, 4]).fill_(2.0) + v.x)

_all("dropout feature_dropout", lambda op, v: op(v.x, 0.5, False))
_all("native_dropout", lambda op, v: op(v.x, 0.5, False)[0])
_all("layer_norm", lambda op, v: op(v.x, [4], v.y[0, 0], v.y[0, 1]), lambda op, v: op(v.x, [3, 4]))
_all("rms_norm", lambda op, v: op(v.x, [4], v.y[0, 0]), lambda op, v: op(v.x, [4], None, 1e-3))
_all("group_norm", lambda op, v: op(v.x.transpose(1, 2), 2, v.y[0, 0], v.y[0, 1]))
_all("instance_norm", lambda op, v: op(v.x, v.y[0, :, 0], v.y[1, :, 0], None, None, True, 0.1, 1e-5, False))
_all("batch_norm", lambda op, v: op(v.x, v.y[0, :, 0], v.y[1, :, 0], v.x[0, :, 0].detach(),
                                      v.x[1, :, 0].detach().exp(), False, 0.1, 1e-5, False),
     lambda op, v: op(v.x, None, None, None, None, True, 0.1, 1e-5, False))  # fmt: skip
_all("_native_batch_norm_legit_no_training", lambda op, v: op(
    v.x, v.y[0, :, 0], v.y[1, :, 0], v.x[0, :, 0].detach(), v.x[1, :, 0].detach().exp(), 0.1, 1e-5)[0])  # fmt: skip
_all("_weight_norm", lambda op, v: op(v.x, v.y[:, :1, :1].exp(), 0))
_all("_weight_norm_interface", lambda op, v: op(v.x, v.y[:, :1, :1].exp(), 0)[0])
_all("mse_loss", lambda op, v: op(v.x, v.y), lambda op, v: op(v.x, v.y, 0), lambda op, v: op(v.x, v.y, 2))
_all(
    "cross_entropy_loss",
    lambda op, v: op(v.x[0], v.i[0, 0, :3]),
    lambda op, v: op(v.x[0], v.i[0, 0, :3], None, 2, 1, 0.1),
)
_all("conv1d", lambda op, v: op(v.x, v.y[:, :, :2], v.y[:, 0, 0], [1], [1]))
_all("conv1d.padding", lambda op, v: op(v.x, v.y[:, :, :3], None, [1], "same"))
_all("conv2d", lambda op, v: op(v.x[:, None], v.y[:, None, :2, :2], v.y[:, 0, 0], [1, 2], [1, 1]))
_all("conv2d.padding", lambda op, v: op(v.x[:, None], v.y[:, None, :2, :2], None, [1, 1], "valid"))
_all("conv_transpose1d", lambda op, v: op(v.x, v.y[:1, :, :3].transpose(0, 1), v.y[0, 0, :1], [2], [1], [1]))
_all("conv_transpose2d.input", lambda op, v: op(v.x[:, None], v.y[:1, None, :2, :2], v.y[0, 0, :1], [2, 1]))
_all("max_pool1d avg_pool1d", lambda op, v: op(v.x, 2, 1), lambda op, v: op(v.x, 2))
_all("max_pool1d_with_indices", lambda op, v: op(v.x, 2, 1)[0])
_all(
    "max_pool2d avg_pool2d",
    lambda op, v: op(v.x[:, None], 2, 1),
    lambda op, v: op(v.x[:, None], [1, 2], [1, 2], [0, 1]),
)
_all("max_pool2d_with_indices", lambda op, v: op(v.x[:, None], 2, 1)[0])
_all("adaptive_avg_pool1d", lambda op, v: op(v.x, 2), lambda op, v: op(v.x, 3))
_all("adaptive_max_pool1d", lambda op, v: op(v.x, 2)[0])
_all("adaptive_avg_pool2d _adaptive_avg_pool2d", lambda op, v: op(v.x[:, None], [2, 3]))
_all("adaptive_max_pool2d", lambda op, v: op(v.x[:, None], [2, 3])[0])
_all("upsample_nearest1d", lambda op, v: op(v.x, [8]))
_all("upsample_nearest1d.vec", lambda op, v: op(v.x, None, [2.0]))
_all("upsample_nearest2d", lambda op, v: op(v.x[:, None], [6, 8]))
_all("upsample_nearest2d.vec", lambda op, v: op(v.x[:, None], None, [2.0, 3.0]))

_all(
    "lstm_cell",
    lambda op, v: op(
        v.x[0],
        [v.x[1, :, :1], v.x[1, :, 1:2]],
        v.y[0, 0, :, None] * v.y[1, :1],
        v.y[0, 1, :, None],
        v.y[0, 2],
        v.y[1, 2],
    ),
)
_all("gru_cell", lambda op, v: op(v.x[0], v.x[1, :, :1], v.y[0], v.y[1, :, :1], v.y[0, :, 0], v.y[1, :, 0]))
_all(
    "rnn_tanh_cell rnn_relu_cell",
    lambda op, v: op(v.x[0], v.x[1, :, :3], v.y[0], v.y[1, :, :3], v.y[0, :, 0], v.y[1, :, 0]),
)
_all(
    "lstm.input",
    lambda op, v: op(
        v.x,
        [v.x[:1, :, :1], v.x[1:, :, :1]],
        [v.y[0, 0, :, None] * v.y[1, :1], v.y[0, 1, :, None]],
        False,
        1,
        0.0,
        False,
        False,
        False,
    )[0],
)
_all("gru.input", lambda op, v: op(v.x, v.x[:1, :, :1], [v.y[0], v.y[1, :, :1]], False, 1, 0.0, False, False, False)[0])
_all(
    "rnn_tanh.input rnn_relu.input",
    lambda op, v: op(v.x, v.x[:1, :, :3], [v.y[0], v.y[1, :, :3]], False, 1, 0.0, False, False, False)[0],
)


SINGLES: dict[str, list[Case]] = {
    f"aten.{w}.default": [lambda op, v: op(v.x)] for w in f"{UNARY} {POSITIVE} {INSIDE}".split()
}
PAIRS: dict[str, list[Case]] = {
    f"aten.{w}": [lambda op, v: op(v.x, v.y)]
    for w in """atan2.default maximum.default minimum.default logaddexp.default max.other min.other fmod.Tensor
    remainder.Tensor floor_divide.default div.Tensor pow.Tensor_Tensor eq.Tensor lt.Tensor ge.Tensor ne.Tensor
    clamp_min.Tensor clamp_max.Tensor""".split()
} | {"aten.div.Tensor_mode": [_rounded(lambda op, v: op(v.x, v.y), mode) for mode in ("floor", "trunc")]}
"""Functions of one value, and of two, that are called at every pair of values where functions break."""


class Single(torch.nn.Module):  # type: ignore[misc]  # torch has no types here
    """One op over its operands."""

    def __init__(self, name: str, case: Case) -> None:
        super().__init__()
        space, op, overload = name.split(".")
        self.op, self.case = getattr(getattr(getattr(torch.ops, space), op), overload), case

    def forward(self, x: Any, y: Any, i: Any, m: Any) -> Any:
        return self.case(self.op, SimpleNamespace(x=x, y=y, i=i, m=m))


def operands(seed: int) -> tuple[Any, Any, Any, Any]:
    """x, y, i and m, none of whose elements is near a step of a function."""
    g = torch.Generator().manual_seed(seed)
    x, y = (torch.randn(2, 3, 4, generator=g) for _ in range(2))
    return x, y + 0.2 * y.sign(), torch.randint(0, 4, (2, 3, 4), generator=g), torch.rand(2, 3, 4, generator=g) < 0.6


def edges(pairs: bool) -> tuple[Any, Any]:
    """Values where functions break as x and y, or all pairs of them."""
    if not pairs:
        return EDGES, EDGES
    x, y = torch.meshgrid(EDGES, EDGES, indexing="ij")
    return x.flatten(), y.flatten()
