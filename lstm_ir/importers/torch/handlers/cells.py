"""LSTMCell, GRUCell and RNNCell: one step, a layer of one step."""

from __future__ import annotations

from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.torch.call import Call
from lstm_ir.importers.torch.handlers.recurrent import KINDS, Kind, biases
from lstm_ir.importers.torch.table import taken
from lstm_ir.ir.graph import Value


def _one_step(c: Call, kind: Kind, hx: list[Value]) -> Any:
    """Results of a layer over x [1,B,I] and states [1,B,H]."""
    b_ih, b_hh = c.optional("b_ih"), c.optional("b_hh")
    parts = {} if b_ih is None or b_hh is None else biases(kind, b_ih, b_hh)
    begin = dict(zip(("h0", "c0"), (li.expand_dims(h, 0) for h in hx), strict=False))
    x = li.expand_dims(c.tensor("input"), 0)
    return kind.builder(x, c.tensor("w_ih"), c.tensor("w_hh"), **parts, **begin, **kind.options(1))


@taken("aten.lstm_cell.default")
def lstm_cell(c: Call) -> list[Value]:
    """h and c [B,H] of x [B,I], h and c."""
    _, h, cell = _one_step(c, KINDS["lstm"], c.tensors("hx"))
    return [li.squeeze(h, 0), li.squeeze(cell, 0)]


def _register(name: str, kind: Kind) -> None:
    def cell(c: Call) -> Value:
        _, h = _one_step(c, kind, [c.tensor("hx")])
        return li.squeeze(h, 0)

    taken(f"aten.{name}.default")(cell)


for _name, _kind in (("gru_cell", "gru"), ("rnn_tanh_cell", "rnn_tanh"), ("rnn_relu_cell", "rnn_relu")):
    _register(_name, KINDS[_kind])
