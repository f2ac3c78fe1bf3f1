"""Softmax, normalisations, embedding, losses."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.torch.call import Call
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.graph import Value
from lstm_ir.ir.types import DType
from lstm_ir.ops.nn.normalisation import affine, normalised


@taken("aten.softmax.int", "aten._softmax.default")
def softmax(c: Call) -> Value:
    """exp(x) by its sum along an axis."""
    c.any("dtype"), c.any("half_to_float")
    x = c.operand("self", c.dtype)
    return li.softmax(x, c.axis("dim", x.rank))


@taken("aten.log_softmax.int", "aten._log_softmax.default")
def log_softmax(c: Call) -> Value:
    """The logarithm of softmax."""
    c.any("dtype"), c.any("half_to_float")
    x = c.operand("self", c.dtype)
    return li.log_softmax(x, c.axis("dim", x.rank))


@taken("aten.batch_norm.default", rows=lambda c: not c.flag("training"),
       refused="training with running statistics, which change")  # fmt: skip
def batch_norm(c: Call) -> Value:
    """Normalised by running statistics; by those of the batch where there are none."""
    x, scale, bias = c.tensor("input"), c.optional("weight"), c.optional("bias")
    mean, variance, epsilon = c.optional("running_mean"), c.optional("running_var"), c.real("eps")
    c.real("momentum"), c.any("cudnn_enabled")
    if c.flag("training") and mean is not None:
        raise NodeRefusedError("training changes its running statistics; module.eval() keeps them")
    if mean is not None and variance is not None:
        return li.batch_norm(x, mean, variance, scale, bias, epsilon=epsilon).y
    axes = (0, *range(2, x.rank))
    y = normalised(li.convert(x, x.dtype.compute_dtype), axes, epsilon).y
    by, plus = (None if w is None else li.reshape(w, (w.shape[0], *(1,) * (x.rank - 2))) for w in (scale, bias))
    return affine(y, by, plus, x.dtype)


@taken("aten._native_batch_norm_legit_no_training.default", rows=True, refused="the results mean and variance")
def batch_norm_in_inference(c: Call) -> list[Any]:
    """Normalised by running statistics."""
    c.real("momentum")
    y = li.batch_norm(c.tensor("input"), c.tensor("running_mean"), c.tensor("running_var"), c.optional("weight"),
                      c.optional("bias"), epsilon=c.real("eps")).y  # fmt: skip
    return [y, None, None]


@taken("aten.layer_norm.default", rows=True)
def layer_norm(c: Call) -> Value:
    """Normalised over the last axes."""
    x = c.tensor("input")
    count = len(c.sizes("normalized_shape"))
    c.any("cudnn_enable")
    axes = tuple(range(x.rank - count, x.rank))
    y = normalised(li.convert(x, x.dtype.compute_dtype), axes, c.real("eps", 1e-5)).y
    return affine(y, c.optional("weight"), c.optional("bias"), x.dtype)


@taken("aten.rms_norm.default", rows=True)
def rms_norm(c: Call) -> Value:
    """By the root of the mean of squares over the last axes."""
    x = c.tensor("input")
    count = len(c.sizes("normalized_shape"))
    smallest = {DType.f64: 2.220446049250313e-16, DType.f16: 0.0009765625, DType.bf16: 0.0078125}
    epsilon = c.real("eps") if c.given("eps") else smallest.get(x.dtype, 1.1920928955078125e-07)
    return li.rms_norm(x, c.optional("weight"), axis=tuple(range(x.rank - count, x.rank)), epsilon=epsilon)


@taken("aten.instance_norm.default", refused="running statistics")
def instance_norm(c: Call) -> Value:
    """Normalised over the axes after the channels, each row and channel by itself."""
    c.real("momentum"), c.any("cudnn_enabled")
    x, mean, variance = c.tensor("input"), c.optional("running_mean"), c.optional("running_var")
    scale, bias, epsilon = c.optional("weight"), c.optional("bias"), c.real("eps")
    if not c.flag("use_input_stats", True):
        if mean is None or variance is None:
            raise NodeRefusedError("it has no running statistics to normalise by")
        return li.batch_norm(x, mean, variance, scale, bias, epsilon=epsilon).y
    if mean is not None:
        raise NodeRefusedError("training changes its running statistics; module.eval() keeps them")
    return li.instance_norm(x, scale, bias, epsilon=epsilon)


@taken("aten.group_norm.default")
def group_norm(c: Call) -> Value:
    """Normalised over the channels of a group and the axes after them."""
    c.any("cudnn_enabled")
    return li.group_norm(c.tensor("input"), c.integer("num_groups"), c.optional("weight"), c.optional("bias"),
                         epsilon=c.real("eps", 1e-5))  # fmt: skip


@taken("aten.embedding.default", rows=True, refused="scale_grad_by_freq, max_norm")
def embedding(c: Call) -> Value:
    """Rows of a table by ids; no gradient goes to the row padding_idx."""
    table, ids, padding = c.tensor("weight"), c.tensor("indices"), c.integer("padding_idx", -1)
    c.flag("sparse")
    if c.flag("scale_grad_by_freq"):
        raise NodeRefusedError("scale_grad_by_freq is not taken")
    y = li.embedding(table, ids)
    if padding < 0:
        return y
    here = li.broadcast_in_dim(li.equal(ids, padding), y.shape, tuple(range(ids.rank)))
    return li.select(here, li.stop_gradient(y), y)


@taken("aten._weight_norm.default", "aten._weight_norm_interface.default", refused="the result norms")
def weight_norm(c: Call) -> Any:
    """g * v / |v|, the norm over all axes but one."""
    v, g, axis = c.tensor("v"), c.tensor("g"), c.integer("dim", 0)
    axes = tuple(a for a in range(v.rank) if axis == -1 or a != axis % v.rank)
    y = v * (g / li.norm(v, 2, axes, keepdims=True))
    return [y, None] if c.name.startswith("aten._weight_norm_interface") else y


_REDUCTIONS = {0: "none", 1: "mean", 2: "sum"}


@taken("aten.cross_entropy_loss.default", refused="class weights; targets that are shares")
def cross_entropy(c: Call) -> Value:
    """The loss of scores [N,C] or [N,C,...] and labels; labels that are ignore_index do not count."""
    x, labels = c.tensor("self"), c.tensor("target")
    if c.given("weight"):
        raise NodeRefusedError("class weights are not taken")
    if not labels.dtype.is_int:
        raise NodeRefusedError(f"targets are {labels.dtype}, not labels")
    x = x if x.rank <= 2 else li.transpose(x, (0, *range(2, x.rank), 1))
    counts = li.not_equal(labels, c.integer("ignore_index", -100))
    return li.cross_entropy(x, labels, counts, label_smoothing=c.real("label_smoothing", 0.0),
                            reduction=_REDUCTIONS[c.integer("reduction", 1)])  # fmt: skip


@taken("aten.mse_loss.default")
def mse_loss(c: Call) -> Value:
    """The squared difference, its mean, or its sum."""
    return li.mse(c.tensor("self"), c.tensor("target"), reduction=_REDUCTIONS[c.integer("reduction", 1)])
