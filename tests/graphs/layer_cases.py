"""Cases of the core recurrent ops: which operands and attributes go together, and random data for
them."""

import itertools
from typing import Any

import numpy as np

import lstm_ir as li

T, B, I, H, P = 11, 3, 5, 7, 4
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
SEED = 20240613

LSTM_FEATURES: dict[str, dict[str, Any]] = {
    "plain": {},
    "states": {"h0": 1, "c0": 1},
    "projected_x": {"w_ih": None},
    "no_bias": {"b": None},
    "projection": {"w_hr": 1},
    "peephole3": {"peephole": 3},
    "peephole4_previous": {"peephole": 4, "output_peephole": "previous"},
    "peephole3_previous": {"peephole": 3, "output_peephole": "previous"},
    "lengths": {"lengths": (4, 0, 11)},
    "count": {"count": 6},
    "mask": {"recurrent_mask": 1},
    "reverse": {"direction": "reverse"},
    "bidirectional": {"direction": "bidirectional"},
    "batch": {"layout": "batch"},
    "hold": {"padding": "hold"},
    "forget_bias": {"forget_bias": 1.0},
    "cell_clip": {"cell_clip": 0.3},
    "straight": {"cell_clip": 0.3, "clip_gradient": "straight_through"},
    "gate_clip": {"gate_clip": 0.4},
    "input_forget": {"input_forget": True},
    "activations": {"acts": ["hard_sigmoid(0.3,0.4)", "sigmoid", "elu(0.7)", "softplus", "softsign"]},
}
SHARED = ("plain projected_x no_bias lengths count mask reverse bidirectional batch hold gate_clip").split()
GRU_FEATURES: dict[str, dict[str, Any]] = {k: v for k, v in LSTM_FEATURES.items() if k in SHARED} | {
    "states": {"h0": 1},
    "b_hn": {"b_hn": 1},
    "reset_before": {"reset_after": False},
    "flip_z": {"flip_z": True},
    "activations": {"acts": ["hard_sigmoid(0.2,0.5)", "softsign", "scaled_tanh(1.5,0.6)"]},
}
RNN_FEATURES: dict[str, dict[str, Any]] = {
    k: v for k, v in GRU_FEATURES.items() if k not in ("b_hn", "reset_before", "flip_z", "activations")
} | {"activations": {"acts": ["leaky_relu(0.1)"]}, "relu": {"acts": ["relu"]}}
FEATURES = {"lstm": LSTM_FEATURES, "gru": GRU_FEATURES, "rnn": RNN_FEATURES}
OTHER_ACTS = {
    "lstm": ["affine(0.1,0.4)", "sigmoid", "leaky_relu(0.2)", "thresholded_relu(0.1)", "scaled_tanh(1.2,0.7)"],
    "gru": ["sigmoid", "affine(0.4,0.3)", "tanh"],
    "rnn": ["elu(1.0)"],
}


def names(op: str) -> list[str]:
    """Every feature alone, and every pair that fits together."""
    alone = list(FEATURES[op])
    pairs = []
    for a, b in itertools.combinations(alone, 2):
        fa, fb = FEATURES[op][a], FEATURES[op][b]
        if "plain" in (a, b) or set(fa) & set(fb):
            continue
        if (not fa.get("reset_after", True) and "b_hn" in fb) or ("b_hn" in fa and "reset_after" in fb):
            continue
        pairs.append(f"{a}+{b}")
    return alone + pairs


def build(
    op: str, name: str, dtype: Any = np.float64, seed: int = SEED, sizes: Any = None
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Operands (arrays or None) and attributes of a case."""
    spec: dict[str, Any] = {}
    for part in name.split("+"):
        spec |= FEATURES[op][part]
    t, b, i, h, p = sizes or (T, B, I, H, P)
    rng = np.random.default_rng([seed, *name.encode()])
    D = 2 if spec.get("direction") == "bidirectional" else 1
    G = GATES[op] * h
    p = p if spec.get("w_hr") else h

    def draw(*shape: int) -> Any:
        return rng.normal(size=shape).astype(dtype)

    o: dict[str, Any] = {"x": draw(t, b, i if spec.get("w_ih", 1) else D * G)}
    o["w_ih"] = draw(D, G, i) * 0.7 if spec.get("w_ih", 1) else None
    o["w_hh"] = draw(D, G, p) * 0.6
    o["b"] = draw(D, G) * 0.5 if spec.get("b", 1) else None
    if op == "gru":
        o["b_hn"] = draw(D, h) if spec.get("b_hn") else None
    o["h0"] = draw(D, b, p) if spec.get("h0") else None
    if op == "lstm":
        o["c0"] = draw(D, b, h) if spec.get("c0") else None
        o["w_hr"] = draw(D, p, h) * 0.6 if spec.get("w_hr") else None
        o["peephole"] = draw(D, spec["peephole"] * h) if spec.get("peephole") else None
    o["lengths"] = None
    if spec.get("lengths"):
        o["lengths"] = np.minimum(np.resize(spec["lengths"], b), t).astype(np.int32)
    o["count"] = np.int32(min(spec["count"], t)) if "count" in spec else None
    o["recurrent_mask"] = None
    if spec.get("recurrent_mask"):
        o["recurrent_mask"] = (rng.random((D, b, p)) < 0.7).astype(dtype) / dtype(0.7)
    known = set(
        "direction layout output_peephole padding forget_bias cell_clip clip_gradient gate_clip "
        "input_forget reset_after flip_z".split()
    )
    attrs = {k: v for k, v in spec.items() if k in known}
    if "acts" in spec:
        attrs["activations"] = tuple(spec["acts"] + (OTHER_ACTS[op] if D == 2 else []))
    if attrs.get("layout") == "batch":
        o["x"] = np.swapaxes(o["x"], 0, 1).copy()
    return {k: v if v is None else np.asarray(v, order="C") for k, v in o.items()}, attrs


def graph(op: str, o: dict[str, Any], attrs: dict[str, Any], dynamic: bool = True) -> li.Graph:
    """A graph over inputs named as the operands, T and B dynamic, with every result of
    save=True."""
    values = {}
    batch = attrs.get("layout") == "batch"
    for k, v in o.items():
        if v is None:
            continue
        shape: list[Any] = list(v.shape)
        if dynamic and k == "x":
            shape[:2] = ["B", "T"] if batch else ["T", "B"]
        elif dynamic and k in ("h0", "c0", "recurrent_mask"):
            shape[1] = "B"
        elif dynamic and k == "lengths":
            shape[0] = "B"
        values[k] = li.input(k, tuple(shape), v.dtype.name)
    given = {k: values.get(k) for k in o}
    out = getattr(li, op)(**given, **attrs, save=True)
    results = {k: v for k, v in out._asdict().items() if v is not None}
    return li.Graph(op, values.values(), results)


def arrays(o: dict[str, Any]) -> dict[str, Any]:
    """The operands that are there."""
    return {k: v for k, v in o.items() if v is not None}
