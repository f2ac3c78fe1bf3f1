"""Rules: complete, safe for every value, refused by name where a target lacks a type."""

from __future__ import annotations

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.backends.emit.emitter import RULES
from lstm_ir.backends.module import iree_module
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.opdef import OPS, Level
from lstm_ir.ir.program import Program

pytestmark = pytest.mark.slow_on("vulkan")
DEVICES = ["cpu", pytest.param("vulkan", marks=pytest.mark.vulkan)]


def test_every_primitive_has_a_rule_and_nothing_else() -> None:
    """A parameter is an argument of the function, not an op."""
    primitives = {n for n, op in OPS.items() if op.level is Level.primitive}
    assert primitives - {"parameter"} == set(RULES)


@pytest.mark.slow
def test_f64_on_vulkan_is_refused_by_name() -> None:
    x = li.input("x", (3,), "f64")
    graph = li.Graph("g", [x], {"y": li.tanh(x)})
    with pytest.raises(li.LoweringError, match=r"tanh: has f64 elements, which target vulkan") as e:
        iree_module(Program.of(graph), resolve("vulkan").info)
    assert "test_lowering.py:" in str(e.value)


def test_the_module_names_the_users_line() -> None:
    x = li.input("x", (3,))
    text = iree_module(Program.of(li.Graph("g", [x], {"y": li.tanh(x)})), resolve("cpu").info).text
    assert '"test_lowering.py":' in text


def test_text_is_small_where_weights_are_big() -> None:
    x = li.input("x", ("B", 700))
    w = li.weight("w", np.ones((700, 700), "f4"))
    assert len(li.lower(li.Graph("g", [x], {"y": x @ w}))) < 4000


def case(device: str, graph: li.Graph, **inputs: object) -> None:
    if device != "cpu":
        need(device)
    want = li.interpret(graph, inputs)
    got = li.compile(graph, device)(**inputs)
    for k, w in want.items():
        np.testing.assert_allclose(got[k], w, rtol=1e-5, atol=1e-5, err_msg=k)


@pytest.mark.parametrize("device", DEVICES)
def test_two_writes_into_one_shape_do_not_meet(device: str) -> None:
    """Fills of one size are merged by IREE; what is written to each must not show in the other."""
    x, u = li.input("x", ("T", "B")), li.input("u", (2, "B"))
    i, j = li.input("i", (), "i32"), li.input("j", (), "i32")
    z = x * 2
    out = {
        "early": li.pad(x, (1, 0), (1, 0)), "late": li.pad(x, (2, 0), (0, 0)),
        "a": li.dynamic_update_slice(z, u, [i, 0]), "b": li.dynamic_update_slice(z, u, [j, 0]),
        "c": li.dynamic_update_slice(x, u, [i, 0]), "d": li.dynamic_update_slice(x, u, [j, 0]),
        "xy": li.concat([x, z]), "yx": li.concat([z, x]), "z": z,
    }  # fmt: skip
    graph = li.Graph("writes", [x, u, i, j], out)
    a = np.arange(33, dtype="f4").reshape(11, 3)
    u0 = -np.ones((2, 3), "f4")
    case(device, graph, x=a, u=u0, i=np.int32(1), j=np.int32(4))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(11, 3, 5), (64, 1, 8), ("T", 3, 5), ("T", "B", 5)])
def test_sums_whose_operand_has_other_readers(device: str, shape: tuple[int | str, ...]) -> None:
    """Fused with the other reader, SPIR-V code summed wrong rows."""
    x = li.input("x", shape)
    e = li.exp(x)
    total = li.sum(e, 0)
    outs = {"total": total, "e": e, "share": e / li.sum(e, 0, keepdims=True), "all": li.sum(e)}
    sizes = [s if isinstance(s, int) else {"T": 11, "B": 3}[s] for s in shape]
    a = np.linspace(-1, 1, int(np.prod(sizes)), dtype="f4").reshape(sizes)
    case(device, li.Graph("sums", [x], outs), x=a)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("width", [5, 64])
def test_half_of_every_width(device: str, kind: str, width: int) -> None:
    if device != "cpu":
        need(device)
    x, w = li.input("x", (11, 3, width), kind), li.input("w", (width, width), kind)
    outs = {"y": x @ w, "t": li.tanh(x) + x, "s": li.sum(x, 0), "f": li.convert(x, "f32")}
    graph = li.Graph("half", [x, w], outs)
    r = np.random.default_rng(7)
    dtype = li.DType.of(kind).numpy
    given = {
        "x": r.uniform(-1, 1, (11, 3, width)).astype(dtype),
        "w": r.uniform(-0.2, 0.2, (width, width)).astype(dtype),
    }
    want, got = li.interpret(graph, given), li.compile(graph, device)(given)
    limit = {"f16": 2e-3, "bf16": 1.6e-2}[kind]
    for k, v in want.items():
        np.testing.assert_allclose(got[k].astype("f8"), v.astype("f8"), rtol=limit, atol=limit, err_msg=k)


WILD = np.array([-(2**31), -1_000_000, -1, 0, 3, 11, 2_000_000, 2**31 - 1], "i4")


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(5, 3), ("V", 3)])
def test_wild_computed_indices_touch_nothing_else(device: str, shape: tuple[int | str, ...]) -> None:
    """Where the host reads scalars cheaply the call is refused; elsewhere the index is moved inside."""
    if device != "cpu":
        need(device)
    x, i = li.input("x", shape), li.input("i", (8,), "i32")
    at = li.bitcast_convert(li.bitcast_convert(i, "f32"), "i32")  # computed: not checked before
    rows = li.take(x, at)
    graph = li.Graph("g", [x, i], {"r": rows, "s": li.scatter_add(x, at, rows)})
    exe = li.compile(graph, device)
    a = np.arange(15, dtype="f4").reshape(5, 3)
    if device == "cpu":
        with pytest.raises(li.ValueRangeError, match=r"gather: indices .*\n.*test_lowering.py"):
            exe(x=a, i=WILD)
    else:
        held = np.clip(WILD, 0, 4)
        np.testing.assert_array_equal(exe(x=a, i=WILD)["r"], a[held])
    fine = np.array([0, 1, 2, 3, 4, 0, 1, 2], "i4")
    np.testing.assert_array_equal(exe(x=a, i=fine)["r"], a[fine])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("shape", [(5, 3), ("T", 3)])
def test_windows_are_moved_inside(device: str, shape: tuple[int | str, ...]) -> None:
    if device != "cpu":
        need(device)
    x, u, i = li.input("x", shape), li.input("u", (2, 3)), li.input("i", (), "i32")
    outs = {"r": li.dynamic_slice(x, [i, i], (2, 3)), "w": li.dynamic_update_slice(x, u, [i, i])}
    graph = li.Graph("g", [x, u, i], outs)
    exe = li.compile(graph, device)
    a, b = np.arange(15, dtype="f4").reshape(5, 3), -np.ones((2, 3), "f4")
    for at in WILD:
        want = li.interpret(graph, x=a, u=b, i=at)
        got = exe(x=a, u=b, i=at)
        for k in want:
            np.testing.assert_array_equal(got[k], want[k])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", ["i32", "i8", "i64"])
def test_no_integer_traps(device: str, kind: str) -> None:
    if device != "cpu":
        need(device)
    info = np.iinfo(li.DType.of(kind).numpy)
    edge = np.array([info.min, -1, 0, 1, 7, info.max], info.dtype)
    a, b = (m.reshape(-1).copy() for m in np.meshgrid(edge, edge))
    x, y = li.input("x", (36,), kind), li.input("y", (36,), kind)
    ops = (li.divide, li.remainder, li.shift_left, li.shift_right_arithmetic, li.shift_right_logical)
    graph = li.Graph("g", [x, y], {f.__name__: f(x, y) for f in ops})
    want, got = li.interpret(graph, x=a, y=b), li.compile(graph, device)(x=a, y=b)
    for k in want:
        np.testing.assert_array_equal(got[k], want[k], err_msg=k)


@pytest.mark.parametrize("device", DEVICES)
def test_floats_beyond_an_integer_saturate(device: str) -> None:
    if device != "cpu":
        need(device)
    a = np.array([np.nan, np.inf, -np.inf, 3e9, -3e9, 1e30, 2.0**31, -(2.0**31), 300, -1.5], "f4")
    x = li.input("x", (10,))
    graph = li.Graph("g", [x], {k: li.convert(x, k) for k in ("i8", "u8", "i32", "u32")})
    want, got = li.interpret(graph, x=a), li.compile(graph, device)(x=a)
    for k in want:
        np.testing.assert_array_equal(got[k], want[k], err_msg=k)


def test_f64_functions_have_eleven_digits() -> None:
    """Against Python's math, over ranges where a short range reduction or expansion would fail."""
    import math

    a = np.concatenate([np.linspace(-9, 9, 181), [1e3, -1e5, 1e9 + 0.1, -3e15, 1e-300]])
    x = li.input("x", a.shape, "f64")
    names = {"sin": li.sin, "cos": li.cos, "tanh": li.tanh, "erf": li.erf}
    outs = {k: f(x) for k, f in names.items()}
    outs["rest"] = li.remainder(x, li.constant(np.full(a.shape, 0.7)))
    got = li.compile(li.Graph("g", [x], outs))(x=a)
    for k in names:
        want = np.array([getattr(math, k)(v) for v in a])
        np.testing.assert_allclose(got[k], want, rtol=1e-11, atol=1e-13, err_msg=k)
    np.testing.assert_array_equal(got["rest"], np.fmod(a, 0.7))


def test_power_at_its_edges() -> None:
    edge = np.array([-np.inf, -2, -1, -0.5, -0.0, 0.0, 0.5, 1, 2, 3, np.inf, np.nan])
    a, b = (m.reshape(-1).copy() for m in np.meshgrid(edge, edge))
    x, y = li.input("x", a.shape, "f64"), li.input("y", a.shape, "f64")
    got = li.compile(li.Graph("g", [x, y], {"p": li.power(x, y)}))(x=a, y=b)["p"]
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(got, np.power(a, b), rtol=1e-12)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("size", [7, "B"])
def test_a_scatter_of_halves_leaves_its_operand_to_others(device: str, size: int | str) -> None:
    """The sum is in f32: IREE added in place to the conversion that the other readers shared."""
    if device != "cpu":
        need(device)
    x, u, v = (li.input(n, s, "f16") for n, s in (("x", (5, size)), ("u", (6, size)), ("v", (5, 6))))
    i = li.input("i", (6,), "i32")
    outs = {"a": li.scatter_add(x, i, u), "b": li.scatter_add(x, i, v, 1), "s": li.sum(x, 0)}
    r = np.random.default_rng(11)
    given = {n: r.integers(-2, 3, s).astype("f2") for n, s in (("x", (5, 7)), ("u", (6, 7)))}
    given |= {"v": r.integers(-2, 3, (5, 6)).astype("f2"), "i": r.integers(0, 5, 6).astype("i4")}
    graph = li.Graph("scatters", [x, u, v, i], outs)
    want, got = li.interpret(graph, given), li.compile(graph, device)(given)
    for k in want:
        np.testing.assert_array_equal(got[k], want[k], err_msg=k)


@pytest.mark.parametrize("kernels", [False, True])
def test_a_mask_before_a_batched_product(kernels: bool, rng: np.random.Generator) -> None:
    """IREE reads the mask at a wrong place in the second batch where both become one dispatch."""
    x, c = li.input("x", (2, "B", 5)), li.input("c", (2, "B"), "i1")
    w = rng.standard_normal((2, 28, 5)).astype(np.float32)
    masked = li.select(li.broadcast_in_dim(c, (2, "B", 5), (0, 1)), x, 0.0)
    y = li.dot_general(masked, li.weight("w", w), ((2,), (2,)), ((0,), (0,)))
    exe = li.compile(li.Graph("masked", [x, c], {"y": y}), options={"kernels": kernels})
    for B in (1, 3, 17):
        a = rng.standard_normal((2, B, 5)).astype(np.float32)
        keep = rng.integers(0, 2, (2, B)).astype(bool)
        want = np.einsum("dbk,dnk->dbn", np.where(keep[:, :, None], a, 0), w)
        np.testing.assert_allclose(exe(x=a, c=keep)["y"], want, atol=2e-5)


@pytest.mark.parametrize("device", DEVICES)
def test_products_with_a_size_of_one(device: str, rng: np.random.Generator) -> None:
    """IREE fails on them as StableHLO where another size is named."""
    pairs: list[tuple[tuple[int | str, ...], tuple[int | str, ...]]] = [
        (("B", 3), (3, 1)), (("B", 1), (1, 4)), ((1, "B"), ("B", 4)), ((1, "B"), ("B", 1)),
        ((1, 3), (3, "B")), (("B", 1), (1, "T")), ((4, "B"), ("B", 1)), ((2, "B", 3), (3, 1)),
    ]  # fmt: skip
    ins, outs = [], {}
    for i, (a, b) in enumerate(pairs):
        x, y = li.input(f"x{i}", a), li.input(f"y{i}", b)
        ins += [x, y]
        outs[f"z{i}"] = x @ y
    exe = li.compile(li.Graph("products", ins, outs), device)
    for sizes in ({"B": 5, "T": 7}, {"B": 1, "T": 1}, {"B": 0, "T": 2}):
        given = {}
        for i, pair in enumerate(pairs):
            for n, shape in zip("xy", pair, strict=True):
                real = [sizes.get(str(d), d) for d in shape]
                given[f"{n}{i}"] = rng.standard_normal(real).astype(np.float32)  # type: ignore[arg-type]
        got = exe(given)
        for i in range(len(pairs)):
            want = given[f"x{i}"] @ given[f"y{i}"]
            np.testing.assert_allclose(got[f"z{i}"], want, atol=1e-5, err_msg=f"{pairs[i]} {sizes}")


@pytest.mark.parametrize("device", DEVICES)
def test_unsigned_inputs_of_named_sizes(device: str) -> None:
    x, y = li.input("x", ("T",), "u8"), li.input("y", ("T", 2), "u32")
    graph = li.Graph("unsigned", [x, y], {"x": li.convert(x, "f32"), "y": y + 1, "z": x})
    a, b = np.array([0, 3, 255], "u1"), np.arange(6, dtype="u4").reshape(3, 2) + (2**32 - 3)
    got = li.compile(graph, device)(x=a, y=b.astype("u4"))
    for k, want in li.interpret(graph, x=a, y=b.astype("u4")).items():
        np.testing.assert_array_equal(got[k], want)


@pytest.mark.parametrize("device", DEVICES)
def test_results_that_become_equal(device: str, rng: np.random.Generator) -> None:
    """The same mask twice: IREE took the other result of the dispatch that makes both."""
    x, y, w = li.input("x", (3, 2)), li.input("y", (3, 2)), li.input("w", (2, 8))
    m = li.input("m", (3, 2), "i1")
    c, h = li.select(m, li.tanh(x), 0.0), li.select(m, y * li.tanh(x), 0.0)
    outs = {"z": li.select(m, h, 0.0) @ w, "n": li.select(m, 0.0, c) @ w, "r": li.concat([c, h])}
    graph = li.Graph("equal", [x, y, w, m], outs)
    given = {k: rng.standard_normal(s).astype("f4") for k, s in (("x", (3, 2)), ("y", (3, 2)))}
    given |= {"w": rng.standard_normal((2, 8)).astype("f4"), "m": np.ones((3, 2), bool)}
    case(device, graph, **given)


@pytest.mark.parametrize("device", DEVICES)
def test_one_step_of_two_layers_with_lengths(device: str, rng: np.random.Generator) -> None:
    """The state leaves as one array beside y: the loops are gone and masks meet."""
    x, n = li.input("x", (1, 3, 4)), li.input("n", (3,), "i32")
    ws = [li.input(f"w{i}", (16, 4)) for i in range(4)]
    y1, h1, c1 = li.lstm(x, ws[0], ws[1], lengths=n)
    y2, _, _ = li.lstm(y1, ws[2], ws[3], lengths=n)
    graph = li.Graph("step", [x, n, *ws], {"y": y2, "state": li.concat([c1, h1], 2)})
    given = {f"w{i}": rng.uniform(-1, 1, (16, 4)).astype("f4") for i in range(4)}
    given |= {"x": rng.standard_normal((1, 3, 4)).astype("f4"), "n": np.array([1, 0, 1], "i4")}
    case(device, graph, **given)


@pytest.mark.parametrize("device", DEVICES)
def test_one_repeated_index(device: str, rng: np.random.Generator) -> None:
    """A range that a constant of a named size lies in is known here, not summed up at a call."""
    x, table = li.input("x", ("T", 3)), np.arange(6, dtype="f4").reshape(2, 3)
    outs = {
        "first": x + li.embedding(table, li.zeros(("T",), "i32")),
        "last": x + li.embedding(table, li.ones(("T",), "i32")),
        "loss": li.cross_entropy(x, li.zeros(("T",), "i32")),
    }
    case(device, li.Graph("repeated", [x], outs), x=rng.standard_normal((4, 3)).astype("f4"))
    rows = li.embedding(table, li.full(("T",), 7, "i32"))
    graph = li.Graph("outside", [x], {"y": x + rows})
    with pytest.raises(li.ValueRangeError, match=r"gather: indices holds 7, outside 0\.\.1"):
        li.compile(graph, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("label", [1, 2])
def test_ctc_of_one_constant_label(device: str, label: int, rng: np.random.Generator) -> None:
    """What is counted from constants is folded here: IREE made a wrong mask of it."""
    x, n = li.input("x", ("T", 1, 3)), li.input("n", (1,), "i32")
    loss = li.ctc_loss(x, np.array([[label]], "i4"), n, np.array([1], "i4"))
    graph = li.grad(li.Graph("ctc", [x, n], {"loss": loss}), "loss", ["x"])
    given = {"x": rng.standard_normal((4, 1, 3)).astype("f4"), "n": np.array([4], "i4")}
    case(device, graph, **given)
