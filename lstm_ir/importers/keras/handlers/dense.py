"""Dense, Embedding, Masking, and layers that give their operand back."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall, Masked
from lstm_ir.importers.keras.handlers.activations import function_of
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.graph import Value


@taken("Dense", "units activation use_bias lora_rank lora_alpha", masks=True, refused="LoRA")
def dense(c: LayerCall) -> Value:
    """The last axis times the kernel [I,O]."""
    if c.get("lora_rank") is not None:
        raise NodeRefusedError("lora_rank is given")
    w = c.weights()
    y = li.matmul(c.x, w["kernel"])
    return function_of(c.get("activation"))(y + w["bias"] if "bias" in w else y)


_TABLE = "input_dim output_dim embeddings_initializer embeddings_regularizer embeddings_constraint mask_zero sparse "


@taken("Embedding", f"{_TABLE} lora_rank lora_alpha input_length", refused="LoRA", cast=False)
def embedding(c: LayerCall) -> Masked:
    """Rows of a table; with mask_zero the id 0 is no step."""
    if c.get("lora_rank") is not None:
        raise NodeRefusedError("lora_rank is given")
    ids = c.x
    whole = ids if ids.dtype.is_int else li.convert(ids, "i32")
    mask = li.not_equal(ids, li.constant(0, ids.dtype)) if c.flag("mask_zero") else None
    return Masked((li.embedding(c.weights()["embeddings"], whole),), (mask,))


@taken("Masking", "mask_value")
def masking(c: LayerCall) -> Masked:
    """Steps whose columns all have one value do not exist, and become 0."""
    x = c.x
    value = li.constant(c.real("mask_value", 0.0), x.dtype)
    there = li.not_equal(x, value)
    mask = li.max(li.convert(there, "i32"), x.rank - 1) > 0
    return Masked((li.where(li.expand_dims(mask, x.rank - 1), x, li.zeros_like(x)),), (mask,))


@taken("Identity", masks=True)
def identity(c: LayerCall) -> Value:
    """The operand."""
    return c.x


@taken("ActivityRegularization", "l1 l2", masks=True)
def activity_regularization(c: LayerCall) -> Value:
    """The operand: it acts on the loss alone."""
    return c.x


@taken("Rescaling", "scale offset", masks=True, refused="scales of each channel")
def rescaling(c: LayerCall) -> Value:
    """x * scale + offset."""
    return c.x * c.real("scale", 1.0) + c.real("offset", 0.0)
