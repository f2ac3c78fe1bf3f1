"""Builders called with names of other libraries: an error that says ours, in place of Python's TypeError."""

from __future__ import annotations

from collections.abc import Sequence

from lstm_ir.ir.called import fitting
from lstm_ir.ir.near_names import hint
from lstm_ir.ops.core.layer_words import LAYER

_OTHERS = {
    **dict.fromkeys(("dim", "dims", "axes"), ("axis", "dimension", "axes")),
    **dict.fromkeys(("keepdim", "keep_dims"), ("keepdims",)),
    **dict.fromkeys(("unbiased", "correction"), ("ddof",)),
    **dict.fromkeys(("input", "a", "operand", "data", "tensor", "self"), ("x", "xs", "lhs", "logits")),
    **dict.fromkeys(("other", "y", "b"), ("b", "rhs", "target", "bias")),
    **dict.fromkeys(("tensors", "arrays", "values", "inputs"), ("xs", "x")),
    **dict.fromkeys(("bias", "offset", "beta"), ("bias", "b")),
    **dict.fromkeys(("weight", "kernel", "gamma"), ("w", "scale", "table", "slope", "factor")),
    **dict.fromkeys(("running_mean", "moving_mean"), ("mean",)),
    **dict.fromkeys(("running_var", "moving_variance"), ("var",)),
    **dict.fromkeys(("eps", "variance_epsilon"), ("epsilon",)),
    **dict.fromkeys(("a_min", "min"), ("low",)),
    **dict.fromkeys(("a_max", "max"), ("high",)),
    **dict.fromkeys(("p", "prob"), ("rate", "p", "ord")),
    **dict.fromkeys(("size", "newshape"), ("shape",)),
    **dict.fromkeys(("index", "indexes", "idx"), ("indices",)),
    **dict.fromkeys(("targets", "label", "y_true"), ("labels", "target", "tags")),
    **dict.fromkeys(("num_groups",), ("groups",)),
    **dict.fromkeys(("num_heads",), ("heads",)),
    **dict.fromkeys(("window", "ksize", "pool_size", "window_shape"), ("kernel_size",)),
    **dict.fromkeys(("strides",), ("stride", "strides")),
    **dict.fromkeys(("attn_mask",), ("mask",)),
    **dict.fromkeys(("is_causal",), ("causal",)),
    **dict.fromkeys(("num_classes",), ("depth",)),
    **dict.fromkeys(("seed", "generator", "rng"), ("key", "seed")),
    **dict.fromkeys(("repeats", "multiples"), ("reps",)),
    **dict.fromkeys(("shifts",), ("shift",)),
    **dict.fromkeys(("loc",), ("mean",)),
    **dict.fromkeys(("scale", "stddev"), ("std",)),
    **dict.fromkeys(("minval",), ("low",)),
    **dict.fromkeys(("maxval",), ("high",)),
    **dict.fromkeys(("type", "out_type"), ("dtype",)),
    **dict.fromkeys(("learning_rate", "initial_learning_rate", "max_lr", "base_lr", "init_value"), ("lr", "start")),
    **dict.fromkeys(("total_steps", "decay_steps", "transition_steps", "T_max", "total_iters"), ("steps",)),
    **dict.fromkeys(("warmup_steps", "num_warmup_steps"), ("steps",)),
    **dict.fromkeys(("eta_min", "end_value", "end_lr"), ("end",)),
    **dict.fromkeys(("decay_rate", "lr_factor"), ("factor",)),
    **dict.fromkeys(("step_size", "milestones", "boundaries"), ("at",)),
    **dict.fromkeys(("pct_start", "warmup_ratio"), ("warmup",)),
    **dict.fromkeys(("beta1", "beta2", "beta_1", "beta_2", "b1", "b2"), ("betas",)),
    **dict.fromkeys(("rho", "decay"), ("alpha", "weight_decay")),
    **dict.fromkeys(("param_groups", "params"), ("groups",)),
}
"""Names of NumPy, PyTorch, JAX and Keras, and what builders call the same, the likeliest first."""
_RECURRENT = ("lstm", "gru", "rnn")
_OTHER_BUILDER = {
    **{("sgd", k): "li.momentum(lr, momentum, nesterov=...)" for k in ("momentum", "nesterov")},
    **{
        (optimizer, k): "clip_norm to li.train_step"
        for optimizer in ("adam", "adamw", "momentum", "sgd", "rmsprop", "adagrad")
        for k in ("clipnorm", "global_clipnorm", "clip_norm", "max_grad_norm")
    },
    **{(conv, "padding_mode"): "it to li.pad: mode, and padding 0 here" for conv in ("conv1d", "conv2d")},
    ("cross_entropy", "from_logits"): "nothing, it takes logits",
    ("cross_entropy", "ignore_index"): "mask, such as labels != -100",
}


def _instead(name: str, keyword: str, parameters: Sequence[str]) -> str:
    if any(word in name for word in _RECURRENT) and keyword in LAYER:
        return f". Say {LAYER[keyword]}"
    if (name, keyword) in _OTHER_BUILDER:
        return f". Say {_OTHER_BUILDER[name, keyword]}"
    known = [p for p in _OTHERS.get(keyword, ()) if p in parameters]
    return f". Did you mean {known[0]}?" if known else hint(keyword, parameters, f"; they are {', '.join(parameters)}")


told = fitting(_instead)
"""The builder, whose arguments that do not fit its parameters are an ArgumentError at the user's line."""
