"""TimeDistributed: a layer at each step."""

from __future__ import annotations

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall, Tensor
from lstm_ir.importers.keras.config import layer_spec
from lstm_ir.importers.keras.table import taken
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Value

_READS = (  # of a mask: the classes that Keras hands it to at each step
    "LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "Softmax", "Functional", "Sequential", "GlobalAveragePooling1D",
)  # fmt: skip


@taken(
    "TimeDistributed", "layer", masks=True, refused="masks of [B,T] that its layer reads; layers with several results"
)
def time_distributed(c: LayerCall) -> Value:
    """x [B,T,...] as [B*T,...] through the layer, and apart again."""
    x, spec = c.x, layer_spec(c.get("layer"))
    if x.rank < 3:
        raise NodeRefusedError(f"the operand is {x.type}, of fewer than 3 axes")
    words = {}
    if c.mask is not None and spec.kind in _READS:
        if not isinstance(c.mask, Value) or c.mask.rank != x.rank - 1 or c.mask.rank < 3:
            raise NodeRefusedError(f"a mask that {spec.kind} would read at each step is not taken")
        words["mask"] = Tensor(li.reshape(c.mask, (dims.mul(x.shape[0], x.shape[1]), *x.shape[2:-1])))
    if spec.config.get("stateful"):
        raise NodeRefusedError("its layer is stateful")
    rows = li.reshape(x, (dims.mul(x.shape[0], x.shape[1]), *x.shape[2:]))
    found = c.walk.apply(spec, c.holding.child("layer", spec), [Tensor(rows)], words)
    if len(found) != 1:
        raise NodeRefusedError(f"its layer {spec.kind} has {len(found)} results")
    y = found[0].value
    return li.reshape(y, (*x.shape[:2], *y.shape[1:]))
