"""Every pair of conventions, with every feature that both have: there and back, and what one lacks refused by name.

What a pair gives is also held to what the target's library is held to in test_conventions.py: the same arrays as from
the project's own names. Biases are left out, doubled, peepholes and projections are there alone and together.
"""

from __future__ import annotations

import zlib
from itertools import product
from typing import Any

import numpy as np
import pytest
from convention_runs import FORGET, HIDDEN, RUNS

import lstm_ir as li
from lstm_ir.importers.conventions import CONVENTIONS

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]
T, B, I, H, P = 4, 2, 3, HIDDEN, 2
GATES = {"lstm": 4, "gru": 3, "rnn": 1}
FEATURES: dict[str, dict[str, bool]] = {
    "no bias": {"biased": False},
    "peephole": {"peephole": True},
    "projection": {"projected": True},
    "projection, no bias": {"projected": True, "biased": False},
    "peephole and projection": {"peephole": True, "projected": True},
    "peephole, no bias": {"peephole": True, "biased": False},
}
KINDS: list[tuple[str, bool | None]] = [("lstm", None), ("gru", True), ("gru", False), ("rnn", None)]


def places(cell: str, after: bool | None = None) -> list[str]:
    """The conventions that have the cell, and of a GRU this reset."""
    return [n for n, c in CONVENTIONS.items()
            if cell in c.forms and (after is None or c.forms[cell].resets in (None, after))]  # fmt: skip


def drawn(cell: str, after: bool | None, features: dict[str, bool], *seed: object) -> Arrays:
    """Weights in the project's own names."""
    rng = np.random.default_rng([zlib.crc32(repr(s).encode()) for s in (cell, after, *seed)])
    G, width = GATES[cell], P if features.get("projected") else H
    shapes: dict[str, tuple[int, ...]] = {"w_ih": (G * H, I), "w_hh": (G * H, width)}
    if features.get("biased", True):
        shapes |= {"b": (G * H,)} | ({"b_hn": (H,)} if after else {})
    shapes |= {"w_hr": (P, H)} if features.get("projected") else {}
    shapes |= {"peephole": (3 * H,)} if features.get("peephole") else {}
    return {n: (0.5 * rng.standard_normal(s)).astype(np.float32) for n, s in shapes.items()}


def told(source: str, cell: str, after: bool | None, projected: bool = False) -> dict[str, Any]:
    """What the arrays do not say themselves."""
    sizes = {"hidden_size": H, "projection_size": P if projected else None} if source == "cudnn_params" else {}
    return {"cell": cell, "reset_after": after, "forget_bias": FORGET, **sizes}


def converted(arrays: Arrays, source: str, target: str, cell: str, after: bool | None, **more: bool) -> Arrays:
    return li.convert_weights(arrays, source=source, target=target, **told(source, cell, after, **more))


def lacking(name: str, features: dict[str, bool]) -> list[str]:
    """What an LSTM has of these that a convention has not."""
    form = CONVENTIONS[name].forms["lstm"]
    held = {"peephole": form.peephole, "projection": form.projection}
    asked = {"peephole": features.get("peephole"), "projection": features.get("projected")}
    return [n for n in held if asked[n] and held[n] is None]


def equal(got: Arrays, want: Arrays) -> None:
    assert set(got) == set(want)
    for name, a in want.items():
        assert (got[name].shape, got[name].dtype) == (a.shape, a.dtype), name
        np.testing.assert_allclose(got[name], a, rtol=0, atol=2e-7, err_msg=name)


def there_and_back(cell: str, after: bool | None, source: str, target: str, features: dict[str, bool]) -> None:
    """From the source to the target and back; the way over the target is that from the project's own names."""
    ours, more = drawn(cell, after, features, source, target), {"projected": features.get("projected", False)}
    first = converted(ours, "lstm_ir", source, cell, after)
    second = converted(first, source, target, cell, after, **more)
    back = converted(second, target, source, cell, after, **more)
    direct = converted(ours, "lstm_ir", target, cell, after)
    if features.get("biased", True):
        equal(second, direct)
        equal(back, first)
        return
    # A convention whose biases are never absent gives zeros, and those stay.
    for got, want in ((second, direct), (back, first)):
        equal({n: a for n, a in got.items() if n in want}, want)
        assert all(not got[n].any() for n in set(got) - set(want))


LSTM_PAIRS = list(product(places("lstm"), repeat=2))


@pytest.mark.parametrize("name", FEATURES)
def test_lstm(name: str) -> None:
    features, taken, refused = FEATURES[name], 0, 0
    for source, target in LSTM_PAIRS:
        if lacking(source, features):
            continue
        print(source, target)
        missing = lacking(target, features)
        if not missing:
            there_and_back("lstm", None, source, target, features)
            taken += 1
            continue
        first = converted(drawn("lstm", None, features, source, target), "lstm_ir", source, "lstm", None)
        said = f"{source} to {target}: the weights have a ({'|'.join(missing)}), {target} has none"
        with pytest.raises(li.IRError, match=said):
            converted(first, source, target, "lstm", None, projected=features.get("projected", False))
        refused += 1
    holding = sum(not lacking(n, features) for n in places("lstm"))
    assert (taken, refused) == (holding**2, holding * (len(places("lstm")) - holding))
    assert holding >= 3


@pytest.mark.parametrize(("cell", "after"), KINDS[1:], ids=str)
def test_without_biases(cell: str, after: bool | None) -> None:
    for source, target in product(places(cell, after), repeat=2):
        print(source, target)
        there_and_back(cell, after, source, target, FEATURES["no bias"])


def test_the_other_reset_of_a_gru_is_refused_by_every_pair() -> None:
    """Where the source holds both, and the target one alone."""
    tried = 0
    for after in (True, False):
        for source, target in product(places("gru", after), places("gru")):
            if target in places("gru", after):
                continue
            first = converted(drawn("gru", after, {"biased": False}), "lstm_ir", source, "gru", after)
            when = "after" if after else "before"
            with pytest.raises(li.IRError, match=f"{source} to {target}: this GRU resets {when} the product"):
                converted(first, source, target, "gru", after)
            tried += 1
    assert tried > 30


def test_a_bias_inside_the_product_is_refused_where_it_has_no_place() -> None:
    """Of Core ML's GRU, from every source that holds one."""
    for source in places("gru", True):
        if source == "coreml":
            continue
        first = converted(drawn("gru", True, {}), "lstm_ir", source, "gru", True)
        with pytest.raises(li.IRError, match=f"{source} to coreml: the GRU has a bias inside the product"):
            converted(first, source, "coreml", "gru", True)


def test_a_cell_that_one_of_a_pair_lacks_is_refused() -> None:
    for cell in GATES:
        for has, lacks in product(places(cell), set(CONVENTIONS) - set(places(cell))):
            for source, target in ((has, lacks), (lacks, has)):
                with pytest.raises(li.IRError, match=f"convert_weights: {lacks} has no {cell}; it has "):
                    li.convert_weights({}, source=source, target=target, cell=cell)


PLAIN = [n for n in CONVENTIONS if n not in ("tf_block", "tf_block_v2")]  # those two run in another process


@pytest.mark.parametrize("cell", GATES)
def test_two_biases_of_pytorch(cell: str) -> None:
    """PyTorch's own layers have two biases, each of which counts: the libraries give PyTorch's results."""
    after = True if cell == "gru" else None
    rng = np.random.default_rng(len(cell))
    n = GATES[cell] * H
    shapes = {"weight_ih": (n, I), "weight_hh": (n, H), "bias_ih": (n,), "bias_hh": (n,)}
    arrays = {k: (0.5 * rng.standard_normal(s)).astype(np.float32) for k, s in shapes.items()}
    x = rng.standard_normal((T, B, I)).astype(np.float32)
    want = RUNS["torch"](cell, arrays, x, after)
    for target in places(cell, after):
        if target not in PLAIN or (cell == "gru" and target == "coreml"):
            continue
        made = converted(arrays, "torch", target, cell, after)
        np.testing.assert_allclose(RUNS[target](cell, made, x, after), want, atol=3e-6, err_msg=target)
        back = converted(made, target, "torch", cell, after)
        np.testing.assert_allclose(RUNS["torch"](cell, back, x, after), want, atol=3e-6, err_msg=f"{target} and back")
