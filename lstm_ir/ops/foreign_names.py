"""Names of NumPy, PyTorch, TensorFlow and JAX that are other names here, and what messages say in their place.

`told` of `keywords.py` does so for the names of arguments.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

_CALLED = {
    "absolute": "abs", "arccos": "acos", "arcsin": "asin", "arctan": "atan", "arctan2": "atan2", "fabs": "abs",
    "div": "divide", "true_divide": "divide", "mul": "multiply", "sub": "subtract", "neg": "negate",
    "negative": "negate", "pow": "power", "floordiv": "floor_divide", "fmod": "remainder",
    "rint": "round", "isnan": "is_nan", "isinf": "is_inf", "isfinite": "is_finite", "bitwise_and": "logical_and",
    "bitwise_or": "logical_or", "bitwise_xor": "logical_xor", "bitwise_not": "logical_not", "invert": "logical_not",
    "left_shift": "shift_left", "right_shift": "shift_right_arithmetic",
    "gt": "greater", "ge": "greater_equal", "lt": "less", "le": "less_equal", "eq": "equal", "ne": "not_equal",
    "amax": "max", "amin": "min", "reduce_sum": "sum", "reduce_mean": "mean", "reduce_max": "max",
    "reduce_min": "min", "reduce_prod": "prod", "cat": "concat", "concatenate": "concat", "hstack": "concat",
    "vstack": "concat", "permute": "transpose", "movedim": "transpose", "moveaxis": "transpose", "view": "reshape",
    "unsqueeze": "expand_dims", "expand": "broadcast_to", "chunk": "split", "array_split": "split",
    "repeat_interleave": "repeat", "mm": "matmul", "bmm": "matmul", "mv": "matmul",
    "inner": "einsum", "tensordot": "einsum", "index_select": "take",
    "index_add": "scatter_add", "topk": "top_k", "onehot": "one_hot", "cast": "convert", "astype": "convert",
    "array": "constant", "asarray": "constant", "tensor": "constant", "as_tensor": "constant", "empty": "zeros",
    "placeholder": "input", "variable": "weight", "get_variable": "weight", "detach": "stop_gradient",
    "linear": "dense", "conv": "conv1d", "logsigmoid": "log_sigmoid", "hardsigmoid": "hard_sigmoid",
    "hardswish": "hard_swish", "swish": "silu", "relu6": "clip", "batch_normalization": "batch_norm",
    "layer_normalization": "layer_norm", "scaled_dot_product_attention": "attention", "mse_loss": "mse",
    "nll_loss": "cross_entropy", "softmax_cross_entropy": "cross_entropy", "lstm_cell": "lstm", "gru_cell": "gru",
    "rnn_cell": "rnn", "cond": "select", "fori_loop": "scan", "while_loop": "scan", "jit": "compile",
    "value_and_grad": "grad", "save": "export", "uniform": "random_uniform", "normal": "random_normal",
    "randn": "random_normal", "rand": "random_uniform", "bernoulli": "random_bernoulli",
    "multinomial": "random_categorical", "categorical": "random_categorical", "randperm": "random_permutation",
}  # fmt: skip
"""Foreign names, and the names here."""
_WRITTEN = {
    "ones_like": "li.ones(x.shape, x.dtype)",
    "full_like": "li.full(x.shape, value, x.dtype)",
    "flatten": "li.reshape(x, (-1,))",
    "ravel": "li.reshape(x, (-1,))",
    "trunc": "li.where(x < 0, li.ceil(x), li.floor(x))",
    "linspace": "start + step * li.arange(n, 'f32')",
    "masked_fill": "li.where(mask, value, x)",
    "logaddexp": "li.maximum(a, b) + li.log1p(li.exp(-li.abs(a - b)))",
    "gather": "li.take(x, rows, axis), or li.take_along_axis(x, places, axis) with a place for each element",
    "narrow": "x[start:start + length]",
    "count_nonzero": "li.sum(li.convert(x != 0, 'i32'))",
    "log2": "li.log(x) / math.log(2)",
    "log10": "li.log(x) / math.log(10)",
    "exp2": "li.power(2.0, x)",
    "sinh": "(li.exp(x) - li.exp(-x)) / 2",
    "cosh": "(li.exp(x) + li.exp(-x)) / 2",
    "tan": "li.sin(x) / li.cos(x)",
    "nonzero": "li.where or a mask: no size depends on values",
    "unique": "li.sort: no size depends on values",
}
"""Foreign names, and the expressions that do the same."""
_NUMBERS = "a value has no numbers before a call; li.interpret gives those of a graph's outputs"
_OF_VALUES = {
    "size": "write x.shape, whose sizes may be names; li.dim(x, axis) is one at run time",
    "dim": "write x.ndim; li.dim(x, axis) is a size at run time",
    "t": "write x.T",
    "dot": "write x @ y",
    "to": 'write x.astype("f32")',
    "backward": 'write li.grad(graph, "loss")',
    "repeat": "write li.repeat(x, repeats, axis), NumPy's; PyTorch's repeat is li.tile(x, reps)",
    "fill": "write li.full(x.shape, value, x.dtype)",
    **dict.fromkeys(("item", "numpy", "tolist", "data"), _NUMBERS),
    **dict.fromkeys(("cpu", "cuda", "contiguous", "copy", "clone"), "leave it out: a value is no memory"),
    **{
        name: f'write x.astype("{dtype}")'
        for name, dtype in {
            "float": "f32", "double": "f64", "half": "f16", "int": "i32", "long": "i64", "bool": "i1",
        }.items()
    },
}  # fmt: skip
"""Members of arrays and tensors, and what does the same."""
_VALUES = ("x", "a", "lhs", "logits", "y")
"""What the first operand of a builder is called where it is a value."""


def instead(name: str, known: Iterable[str]) -> str:
    """What stands here for a foreign or misspelt name of the module, as the end of a sentence, or nothing."""
    if name in _WRITTEN:
        return f"; write {_WRITTEN[name]}"
    if name.lower() in _CALLED:
        return f"; it is li.{_CALLED[name.lower()]}"
    near = near_names(name, known)
    return f"; did you mean {' or '.join(f'li.{n}' for n in near)}?" if near else ""


def near_names(name: str, known: Iterable[str]) -> list[str]:
    """Those that are the name in other letters, or else the nearest by spelling."""
    names = list(known)
    return [n for n in names if n.lower() == name.lower()] or difflib.get_close_matches(name, names, n=3)


def of_value(name: str, builders: Mapping[str, Callable[..., Any]]) -> str | None:
    """What to write for a member that values do not have; None where nothing is known."""
    if name in _OF_VALUES:
        return _OF_VALUES[name]
    if name in builders:
        parameters = list(inspect.signature(builders[name]).parameters)
        if parameters[0] in _VALUES:
            return f"write li.{name}(x, ...)"
        return f"li.{name}({', '.join(parameters)}) is a function"
    if name in _WRITTEN:
        return f"write {_WRITTEN[name]}"
    return f"write li.{_CALLED[name]}(x, ...)" if name in _CALLED else None


def of_numpy(name: str, builders: Iterable[str]) -> str:
    """What to write for a function of NumPy that was given a value."""
    return f"; write li.{name}" if name in builders else instead(name, ())
