"""What MPSGraph's ops refuse: every shape, type and attribute, by name and at the user's line."""

from typing import Any

import mps_cases as mps
import pytest

import lstm_ir as li

T, N, I, H = mps.SIZES


def operands(op: str, both: bool, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Shapes of all operands of `op`."""
    word = op.removesuffix("Gradients")
    present = set(mps.OPTIONAL[word])
    if op != word:
        present |= {"sourceGradient", *mps.SAVED[word], *mps.LATER[word]}
    return mps.shapes(word, mps.SIZES, both, present - set(without))


def call(op: str, change: dict[str, Any], both: bool = False, **attrs: Any) -> Any:
    """The op with some operands changed: to nil, a shape, or a shape and a dtype."""
    ins: dict[str, Any] = {}
    nil = tuple(n for n, given in change.items() if given is None)
    for name, shape in operands(op, both, nil).items():
        given, kind = change.get(name, shape), "f32"
        if given is None:
            continue
        if given and isinstance(given[0], tuple):
            given, kind = given
        ins[name] = li.input(name, given, kind)
    if both:
        attrs = {"bidirectional": True} | attrs
    return li.op(op, **ins, **attrs)


def wrong(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes near `shape`: one axis too long or too short, one axis more or less."""
    out = [(*shape, 1), shape[1:]]
    for axis in range(len(shape)):
        for by in (1, -1):
            out.append((*shape[:axis], shape[axis] + by, *shape[axis + 1 :]))
    return out


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("op", mps.NAMES)
def test_every_wrong_shape(op: str, both: bool) -> None:
    """No operand may differ in any axis."""
    call(op, {}, both)
    for name, shape in operands(op, both).items():
        for given in wrong(shape):
            if name == "source" and op in mps.FORWARD and given[1:] == (N, I):
                continue  # source alone says what T is
            if name == "mask" and given == shape[1:]:
                continue  # one row for the whole batch
            with pytest.raises(li.IRError) as e:
                call(op, {name: given}, both)
            first, *_, last = str(e.value).splitlines()
            assert first.startswith(f"{op}: "), first
            assert "operands: " in str(e.value)
            assert "test_mps_contract.py:" in last, last


@pytest.mark.parametrize("op", mps.NAMES)
def test_every_wrong_type(op: str) -> None:
    for name, shape in operands(op, False).items():
        for kind in ("f64", "f16", "i32"):
            with pytest.raises(li.IRError, match=rf"(?s){op}: \w+ .*elements"):
                call(op, {name: (shape, kind)})


@pytest.mark.parametrize("op", mps.NAMES)
def test_every_missing_operand(op: str) -> None:
    """What is not optional is required; what is optional may be nil."""
    required = {"source", "recurrentWeight"}
    if op not in mps.FORWARD:
        required |= {"sourceGradient", *mps.SAVED[op.removesuffix("Gradients")]}
    for name in operands(op, False):
        if name in required:
            with pytest.raises(li.IRError, match=f"{op}: operand {name} is required"):
                call(op, {name: None})
        else:
            call(op, {name: None})


@pytest.mark.parametrize("op", mps.NAMES)
def test_every_wrong_direction(op: str) -> None:
    """A single operand for two directions in a call for one, and the other way round."""
    for both in (False, True):
        other = operands(op, not both)
        for name, shape in operands(op, both).items():
            if other[name] == shape:
                continue
            said = "bidirectional" if both else "not bidirectional"
            problem = "broadcasts to" if name == "mask" else f"the descriptor is {said}"
            with pytest.raises(li.IRError, match=problem):
                call(op, {name: other[name]}, both)


LSTM, BACK, GRU, RNN = mps.LSTM, mps.BACK[mps.LSTM], mps.GRU, mps.RNN
GRU_BACK, RNN_BACK = mps.BACK[GRU], mps.BACK[RNN]
BAD = [
    # wrong block layouts
    (LSTM, {"recurrentWeight": (8 * H, H)}, {}, r"\[56,7\], expected \[4H,H\] = \[28,7\]"),
    (LSTM, {"recurrentWeight": (1, 4 * H, H)}, {}, r"expected \[4H,H\]: the descriptor is not bi"),
    (LSTM, {"recurrentWeight": (H, 4 * H)}, {}, r"expected \[4H,H\] = \[112,28\]"),
    (LSTM, {"recurrentWeight": (3 * H, H)}, {}, r"f32\[21,7\], expected \[4H,H\]"),
    (GRU, {"recurrentWeight": (4 * H, H)}, {}, r"f32\[28,7\], expected \[3H,H\] = \[21,7\]"),
    (RNN, {"recurrentWeight": (4 * H, H)}, {}, r"f32\[28,7\], expected \[H,H\] = \[7,7\]"),
    (LSTM, {"recurrentWeight": (4 * H, "H")}, {}, "hidden sizes are numbers, not names"),
    (LSTM, {"inputWeight": (I, 4 * H)}, {}, r"inputWeight is .*expected \[4H,I\] = \[28,5\]"),
    (LSTM, {"inputWeight": None, "source": (T, N, I)}, {}, r"source is \[T,N,4H\] with 28 columns"),
    (GRU, {"inputWeight": None, "source": (T, N, 28)}, {}, r"source is \[T,N,3H\] with 21 columns"),
    (LSTM, {"bias": (2, 4 * H)}, {}, r"bias is f32\[2,28\], expected \[4H\]"),
    (LSTM, {"peephole": (3 * H,)}, {}, r"peephole is f32\[21\], expected \[4H\]"),
    (LSTM, {"peephole": (2, 4 * H)}, {}, r"expected \[4H\] = \[28\]: the descriptor is not"),
    (GRU, {"secondaryBias": (3 * H,)}, {}, r"secondaryBias is f32\[21\], expected \[H\]"),
    # states and masks
    (LSTM, {"initCell": (2, N, H)}, {}, r"initCell is f32\[2,3,7\], expected \[1,N,H\]"),
    (LSTM, {"mask": (T, N, H)}, {}, "one mask serves all steps"),
    (RNN, {"mask": ("T", N, H)}, {}, "one mask serves all steps"),
    (GRU, {"mask": (N, 3 * H)}, {}, r"expected what broadcasts to \[N,H\] = \[3,7\]"),
    (GRU, {"initState": ("N", H)}, {}, "name them alike if they are equal"),
    # what came from another descriptor
    (BACK, {"zState": (T, N, 8 * H)}, {}, r"zState is .*expected \[T,N,4H\].*not bidirectional"),
    (BACK, {"zState": (T, N, H)}, {}, r"zState is f32\[11,3,7\], expected \[T,N,4H\]"),
    (BACK, {"cellOutputFwd": (N, H)}, {}, r"cellOutputFwd is f32\[3,7\], expected \[T,N,H\]"),
    (BACK, {"sourceGradient": (T, N, I)}, {}, r"sourceGradient is .*expected \[T,N,H\]"),
    (BACK, {"stateGradient": (T, N, H)}, {}, r"stateGradient is .*expected \[1,N,H\]"),
    (GRU_BACK, {"zState": (T, N, H)}, {}, r"zState is f32\[11,3,7\], expected \[T,N,3H\]"),
    (GRU_BACK, {"outputFwd": (T, N, 3 * H)}, {}, r"outputFwd is .*expected \[T,N,H\]"),
    (RNN_BACK, {"zState": (T - 1, N, H)}, {}, r"zState is f32\[10,3,7\], expected \[T,N,H\]"),
    # the descriptor
    (LSTM, {}, {"activation": "gelu"}, "activation is 'gelu', no activation of MPSGraph; they are"),
    (LSTM, {}, {"cellGateActivation": "hard_sigmoid"}, "they are none, relu, tanh, sigmoid, hardS"),
    (GRU, {}, {"resetGateActivation": "Sigmoid"}, "resetGateActivation is 'Sigmoid', no activ"),
    (RNN_BACK, {}, {"activation": ""}, "activation is '', no activation"),
    (LSTM, {}, {"activation": 2}, "attribute activation is 2; expected a text"),
    (LSTM, {}, {"training": 1}, "attribute training is 1; expected True or False"),
    (LSTM, {}, {"resetAfter": True}, "has no attribute resetAfter"),
    (GRU, {}, {"forgetGateLast": True}, "has no attribute forgetGateLast"),
    (GRU, {}, {"produceCell": True}, "has no attribute produceCell"),
    (RNN, {}, {"flipZ": True}, "has no attribute flipZ"),
    # empty
    (LSTM, {"source": (0, N, I)}, {}, "source is empty|T = 0 must be at least 1"),
    (LSTM, {"source": (T, 0, I)}, {}, "N = 0 must be at least 1"),
    (LSTM, {"source": (T, N, 0)}, {}, "I = 0 must be at least 1"),
    (RNN, {"recurrentWeight": (0, 0)}, {}, "recurrentWeight is empty: H = 0"),
    (LSTM, {"source": ((T, N, I), "i32")}, {}, "source has i32 elements, not floats"),
]


@pytest.mark.parametrize(("op", "change", "attrs", "problem"), BAD)
def test_messages(op: str, change: dict[str, Any], attrs: dict[str, Any], problem: str) -> None:
    with pytest.raises(li.IRError, match=problem) as e:
        call(op, change, **attrs)
    assert "test_mps_contract.py:" in str(e.value)


BOTH = [
    ({"recurrentWeight": (8 * H, H)}, r"f32\[56,7\], expected \[2,4H,H\]: the descriptor is bi"),
    ({"inputWeight": (2, 4 * H, I)}, r"f32\[2,28,5\], expected \[8H,I\] = \[56,5\]"),
    ({"bias": (4 * H,)}, r"bias is f32\[28\], expected \[8H\] = \[56\]: the descriptor is bidir"),
    ({"initState": (2, N, H)}, r"initState is f32\[2,3,7\], expected \[N,2H\] = \[3,14\]"),
    ({"initState": (1, N, 2 * H)}, r"initState is f32\[1,3,14\], expected \[N,2H\]"),
    ({"peephole": (4 * H,)}, r"peephole is f32\[28\], expected \[8H\]"),
    ({"peephole": (2, 3 * H)}, r"peephole is f32\[2,21\], expected \[2,4H\]"),
    ({"inputWeight": None, "source": (T, N, 4 * H)}, r"source is \[T,N,8H\] with 56 columns"),
]


@pytest.mark.parametrize(("change", "problem"), BOTH)
def test_messages_of_two_directions(change: dict[str, Any], problem: str) -> None:
    with pytest.raises(li.IRError, match=problem):
        call(LSTM, change, both=True)


def test_unknown_names() -> None:
    with pytest.raises(li.IRError, match=r"no op of this name; is it mps\.LSTM"):
        li.op("mps.LSTN")
    x, R = li.input("x", (T, N, 28), "f32"), li.input("R", (28, H), "f32")
    with pytest.raises(li.IRError, match="has no attribute initialState"):
        li.op("mps.LSTM", source=x, recurrentWeight=R, initialState=None)
