"""Names of NumPy, PyTorch, TensorFlow and JAX that are other names here, and what messages say in their place.

`told` of `keywords.py` does so for the names of arguments.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from lstm_ir.ir.near_names import nearest

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
    "seed": "random_key", "manual_seed": "random_key", "lstmcell": "lstm", "grucell": "gru", "rnncell": "rnn",
    "mean_squared_error": "mse", "train": "train_step", "gradient": "grad", "gradients": "grad",
    "no_grad": "stop_gradient", "from_numpy": "constant", "cosineannealinglr": "schedules",
    "multinomial": "random_categorical", "categorical": "random_categorical", "randperm": "random_permutation",
}  # fmt: skip
"""Foreign names, and the names here."""
_HUBER = "li.mean(li.where(li.abs(x - y) < 1, 0.5 * (x - y) ** 2, li.abs(x - y) - 0.5))"
_BINARY = "li.mean(li.softplus(x) - x * y), x are logits"
_RANKED = "li.sort(x, -1)[..., k], the element of rank k"
_PADDED = "li.lstm(x, w_ih, w_hh, lengths=lengths), x padded; li.gru and li.rnn have lengths too"
_CLIPPED = "li.train_step(graph, loss, optimizer, clip_norm=1.0)"
_WRITTEN = {
    **dict.fromkeys(("huber", "huber_loss", "huberloss", "smooth_l1_loss", "smoothl1loss"), _HUBER),
    **dict.fromkeys(("l1_loss", "l1loss", "mae", "mean_absolute_error"), "li.mean(li.abs(x - y))"),
    "rmse": "li.sqrt(li.mse(x, y))",
    **dict.fromkeys(("bce", "bceloss", "bcewithlogitsloss", "binary_cross_entropy", "binary_crossentropy"), _BINARY),
    "binary_cross_entropy_with_logits": _BINARY,
    **dict.fromkeys(("quantile", "percentile", "median"), _RANKED),
    "ema": "li.scan with the average as the carry",
    "nn": "li.lstm, li.gru, li.dense and others: they are functions of values and weights",
    "optim": "li.sgd, li.momentum, li.adam, li.adamw, li.rmsprop or li.adagrad",
    **dict.fromkeys(("masking", "pad_sequence", "pack_sequence"), _PADDED),
    **dict.fromkeys(("pack_padded_sequence", "pad_packed_sequence"), _PADDED),
    "bidirectional": 'li.lstm(x, w_ih, w_hh, direction="bidirectional"); li.gru and li.rnn have direction too',
    "timedistributed": "li.dense(x, w), which acts on the last axis",
    "sequential": "a function of values, one layer after the other",
    **dict.fromkeys(("clip_grad_norm_", "clip_grad_norm", "clip_by_global_norm", "clip_by_norm"), _CLIPPED),
    "clip_gradients": _CLIPPED,
    "dataloader": "li.fit(program, batches, epochs=n), batches any iterable of dicts of arrays",
    "earlystopping": "li.fit(program, batches, epochs=n, validation=batches, patience=3)",
    "modelcheckpoint": "li.fit(program, batches, epochs=n, checkpoint=path)",
    "reducelronplateau": "li.schedules.plateau(lr)",
    "evaluate": "li.train_step(graph, loss, optimizer, evaluate=True), whose program has an entry of this name",
    "predict": 'exe.entries["infer"](x=a), where li.train_step made the program',
    "save_state": "exe.save_state(path)",
    "load_state": "exe.load_state(path)",
    "save_weights": "exe.save_state(path); li.read_weights(path) reads it",
    "load_weights": "li.with_weights(graph, path)",
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
    lower = name.lower()
    if lower in _WRITTEN:
        return f"; write {_WRITTEN[lower]}"
    if lower in _CALLED:
        return f"; it is li.{_CALLED[lower]}"
    near = nearest(name, known)
    return f"; did you mean {' or '.join(f'li.{n}' for n in near)}?" if near else ""


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
