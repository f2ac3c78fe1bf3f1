"""Calls of MPSGraph's recurrent ops: shapes, random values, graphs, and the recorded cases."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

import numpy as np
import one_op
import paths
from one_op import close as close
from one_op import expanded as expanded

import lstm_ir as li
from lstm_ir.ir.opdef import OPS

Array = np.ndarray[Any, Any]
Arrays = dict[str, Any]
GOLDEN = paths.GOLDEN / "mps"

LSTM, GRU, RNN = "mps.LSTM", "mps.GRU", "mps.singleGateRNN"
FORWARD = (LSTM, GRU, RNN)
BACK = {op: f"{op}Gradients" for op in FORWARD}
NAMES = (*FORWARD, *BACK.values())
GATES = {LSTM: 4, GRU: 3, RNN: 1}
OPTIONAL = {
    LSTM: ("inputWeight", "bias", "initState", "initCell", "mask", "peephole"),
    GRU: ("inputWeight", "bias", "initState", "mask", "secondaryBias"),
    RNN: ("inputWeight", "bias", "initState", "mask"),
}
"""Nil or not, forward."""
LATER = {LSTM: ("stateGradient", "cellGradient"), GRU: ("stateGradient",), RNN: ("stateGradient",)}
"""Nil or not, backward alone."""
SAVED = {LSTM: {"zState": "z", "cellOutputFwd": "c"}, GRU: {"zState": "z", "outputFwd": "h"}, RNN: {"zState": "z"}}
ORDER = {
    LSTM: "source recurrentWeight inputWeight bias peephole initState initCell",
    GRU: "source recurrentWeight inputWeight bias initState secondaryBias",
    RNN: "source recurrentWeight inputWeight bias initState",
}
"""Apple's order of the returned gradients."""
DIRECTIONS: tuple[Arrays, ...] = (
    {},
    {"reverse": True},
    {"bidirectional": True},
    {"reverse": True, "bidirectional": True},
)
SIZES = (11, 3, 5, 7)
TOLERANCE = {"float32": 2e-5, "float16": 2e-2, "bfloat16": 8e-2, "float64": 1e-11}


def times(k: int, size: Any) -> Any:
    return k * size if isinstance(size, int) else f"{k}*{size}"


def shapes(
    op: str, sizes: tuple[Any, Any, Any, int], bidirectional: bool, present: Iterable[str]
) -> dict[str, tuple[Any, ...]]:
    """Operands of a forward op, and the names of `present` that are backward operands."""
    T, N, I, H = sizes
    D, G = 2 if bidirectional else 1, GATES[op]
    matrix = (2, G * H, H) if D == 2 else (G * H, H)
    state, row = (N, D * H), (T, N, D * H)
    present = set(present)
    known = {
        "source": (T, N, I if "inputWeight" in present else D * G * H),
        "recurrentWeight": matrix,
        "inputWeight": (D * G * H, I),
        "bias": (D * G * H,),
        "initState": state,
        "initCell": state,
        "mask": state,
        "peephole": (2, 4 * H) if D == 2 else (4 * H,),
        "secondaryBias": (D * H,),
        "sourceGradient": row,
        "zState": (T, N, D * G * H),
        "cellOutputFwd": row,
        "outputFwd": row,
        "stateGradient": state,
        "cellGradient": state,
    }
    return {n: s for n, s in known.items() if n in present | {"source", "recurrentWeight"}}


def operands(
    r: np.random.Generator,
    op: str,
    present: Iterable[str],
    attrs: Mapping[str, Any] | None = None,
    sizes: tuple[int, int, int, int] = SIZES,
    kind: Any = np.float64,
    scale: float = 1.0,
) -> Arrays:
    """Random operands; weights so small that nothing grows, masks of zeros and 1/keep."""
    both = bool((attrs or {}).get("bidirectional"))
    out: Arrays = {}
    for name, shape in shapes(op, sizes, both, present).items():
        value = r.standard_normal(shape) * scale
        if name in ("recurrentWeight", "inputWeight"):
            value /= np.sqrt(shape[-1])
        if name == "mask":
            value = (r.random(shape) < 0.7) / 0.7
        out[name] = value.astype(kind)
    return out


def graph(
    op: str, arrays: Mapping[str, Array], attrs: Mapping[str, Any], named: Any = None, name: str = "g"
) -> li.Graph:
    """As one_op.graph, results called r_NAME: a gradient has the name of its operand."""
    return one_op.graph(op, arrays, attrs, named, name, "r_")


def run(op: str, a: Mapping[str, Any], attrs: Mapping[str, Any]) -> Arrays:
    """The NumPy meaning itself, over arrays."""
    found = OPS[op]
    full = {n: attrs.get(n, spec.default) for n, spec in found.attrs.items()}
    out = found.numpy(*(a.get(o.name) for o in found.operands), **full)
    return dict(zip(result_names(op, a, full), out, strict=True))


def result_names(op: str, a: Mapping[str, Any], attrs: Mapping[str, Any]) -> list[str]:
    """Results of a call as Apple gives them."""
    if op.endswith("Gradients"):
        return [n for n in ORDER[op.removesuffix("Gradients")].split() if a.get(n) is not None]
    cell = op == LSTM and (attrs.get("produceCell") or attrs.get("training"))
    return ["h", *(["c"] if cell else []), *(["z"] if attrs.get("training") else [])]


def backward(r: np.random.Generator, op: str, a: Arrays, attrs: Mapping[str, Any], later: Iterable[str]) -> Arrays:
    """`a`, the saved values of the forward call, and random gradients."""
    out = run(op, a, {**attrs, "training": True})
    more: Arrays = {"sourceGradient": r.standard_normal(out["h"].shape).astype(out["h"].dtype)}
    more |= {operand: out[result] for operand, result in SAVED[op].items()}
    state = (out["h"].shape[1], out["h"].shape[2])
    more |= {n: r.standard_normal(state).astype(out["h"].dtype) for n in later}
    return a | more


class Recorded:
    """One recorded case."""

    def __init__(self, entry: Mapping[str, Any]) -> None:
        self.id: str = entry["id"]
        word = {"lstm": LSTM, "gru": GRU, "rnn": RNN}[entry["op"]]
        self.op = word if entry["kind"] == "forward" else BACK[word]
        self.attrs: Arrays = entry["descriptor"]
        self.tolerance: Mapping[str, float] = {
            kind: entry[f"suggested_{kind}_tolerance"]["atol"] for kind in ("float32", "float64")
        }
        names = [r["name"] for r in entry["results_in_order"]]
        with np.load(GOLDEN / entry["file"]) as z:
            arrays = {k: z[k] for k in z.files}
        self.inputs = {k[3:]: a for k, a in arrays.items() if k.startswith("in_")}
        self.results = {f"r_{n}": arrays[f"out{i}_{n}"] for i, n in enumerate(names)}

    def graph(self, kind: Any = np.float32) -> li.Graph:
        """The op over inputs."""
        return graph(self.op, self.given(kind), self.attrs, name=self.id)

    def given(self, kind: Any = np.float32) -> Arrays:
        """The inputs, recorded as float32."""
        return {k: a.astype(kind) for k, a in self.inputs.items()}

    def __repr__(self) -> str:
        return self.id


@cache
def recorded() -> tuple[Recorded, ...]:
    """All recorded cases."""
    return tuple(map(Recorded, one_op.manifest(GOLDEN)["cases"]))
