"""Loops that end by what their steps compute: how many steps run, what comes after them, and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import xla
from device import need

import lstm_ir as li
from lstm_ir.ir.binding import bind_sizes
from lstm_ir.ir.loop import Loop
from lstm_ir.passes.pipeline import Pipeline

Array = np.ndarray[Any, Any]
B, H = 3, 5


def whole(T: Any = "T", kind: str = "f32", count: bool = False) -> li.Graph:
    """A state that grows; the loop ends where its sum reaches `end`."""
    x, w = li.input("x", (T, B, H), kind), li.input("w", (H,), kind)
    end = li.input("end", (), kind)
    n = li.input("n", (), "i32") if count else None

    def cell(h: Any, x: Any, w: Any) -> Any:
        h = h + li.exp(x * w)
        return h, (h * 2.0, li.convert(h > 3.0, "i32"))

    h, (y, big), steps = li.scan(cell, li.zeros((B, H), kind), x, w, until=lambda h, y: li.sum(h) >= end, count=n)
    loss = li.sum(y * y) + li.sum(h * h * h)
    inputs = [x, w, end] if n is None else [x, w, end, n]
    return li.Graph("whole", inputs, {"h": h, "y": y, "big": big, "steps": steps, "loss": loss})


def of_numpy(x: Array, w: Array, end: Any, n: Any = None) -> dict[str, Array]:
    """The same by a Python loop in double precision."""
    x, w = x.astype("f8"), w.astype("f8")
    h, y, big = np.zeros((B, H)), np.zeros_like(x), np.zeros(x.shape, "i4")
    steps = 0
    for t in range(len(x) if n is None else n):
        h = h + np.exp(x[t] * w)
        y[t], big[t] = h * 2, h > 3
        steps = t + 1
        if h.sum() >= end:
            break
    loss = (y * y).sum() + (h**3).sum()
    return {"h": h, "y": y, "big": big, "steps": np.int32(steps), "loss": loss}


def arrays(T: int, kind: str = "f4", seed: int = 3) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(T, B, H)).astype(kind), "w": (rng.normal(size=H) / 4).astype(kind)}


def ends_after(k: float, given: dict[str, Any]) -> Array:
    """What the sum reaches in the middle of step k + 1."""
    sums = np.exp(given["x"].astype("f8") * given["w"].astype("f8")).sum((1, 2)).cumsum()
    reached = np.concatenate([[0.0], sums])
    low = int(k)
    return np.asarray(reached[low] + 0.5 * (reached[min(low + 1, len(sums))] - reached[low]), given["x"].dtype)


def same(got: dict[str, Array], want: dict[str, Array], limit: float = 2e-5) -> None:
    assert got.keys() == want.keys()
    for k, v in want.items():
        if v.dtype.kind == "i":
            np.testing.assert_array_equal(got[k], v, err_msg=k)
        else:
            np.testing.assert_allclose(got[k], v, rtol=limit, atol=limit, err_msg=k)


@pytest.mark.parametrize("T", [0, 1, 2, 40])
@pytest.mark.parametrize("k", [0, 1, 7, 39, 100])
def test_meaning(T: int, k: int) -> None:
    """It ends after the step whose flag holds, at the latest after the last; rows after it are zero."""
    given = arrays(T, "f8")
    given["end"] = ends_after(min(k, T), given) if T else np.float64(1)
    same(li.interpret(whole(kind="f64"), given), of_numpy(**given), 1e-12)


@pytest.mark.parametrize("kernels", [True, False])
@pytest.mark.parametrize("named", [True, False])
def test_compiled(named: bool, kernels: bool) -> None:
    """Also at the borders of the chunks that an outer loop stores."""
    T = 70
    exe = li.compile(whole() if named else bind_sizes(whole(), {"T": T}), options={"kernels": kernels})
    for k in (0, 1, 30, 31, 32, 33, 63, 64, 69):
        given = arrays(T)
        given["end"] = ends_after(k, given)
        got = exe(given)
        assert got["steps"] == k + 1
        same(got, of_numpy(**given), 2e-5)
    never = {**arrays(T), "end": np.float32(1e9)}
    assert exe(never)["steps"] == T
    same(exe(never), of_numpy(**never), 2e-5)
    assert any("kernel, " in n and "ends by what its steps compute" in n for n in exe.report.notes) == kernels


def test_short_and_empty_loops() -> None:
    exe = li.compile(whole())
    for T in (0, 1, 2):
        given = {**arrays(T), "end": np.float32(1)}
        same(exe(given), of_numpy(**given))
        one = bind_sizes(whole(), {"T": T})
        same(li.compile(one)(given), of_numpy(**given))


def test_at_most_count() -> None:
    exe = li.compile(whole(count=True))
    for n, k in ((0, 5), (4, 5), (50, 5), (50, 35), (6, 5)):
        given = arrays(50)
        given["end"] = ends_after(k, given)
        want = of_numpy(**given, n=n)
        assert want["steps"] == min(n, k + 1)
        same(exe(**given, n=np.int32(n)), want)
        same(li.interpret(whole(count=True), **given, n=np.int32(n)), want)


@pytest.mark.parametrize("T", [1, 20, 70])
def test_in_a_portable_module(T: int) -> None:
    """Pure StableHLO, with sizes as numbers, on XLA's compiler."""
    need("jax")
    given = arrays(T)
    for k in (0, min(T, 34) - 1, T):
        given["end"] = ends_after(k, given) if k < T else np.float32(1e9)
        graph = bind_sizes(whole(), {"T": T})
        assert "scf." not in li.lower(graph)
        same(xla.run(graph, given), of_numpy(**given), 2e-5)


def test_named_sizes_in_a_portable_text() -> None:
    assert "scf.while" in li.lower(whole())


def test_on_vulkan() -> None:
    need("vulkan")
    given = arrays(40)
    given["end"] = ends_after(34, given)
    same(li.compile(whole(), "vulkan")(given), of_numpy(**given))


# -- rows that end one by one


def by_row(T: Any = "T", kind: str = "f32") -> li.Graph:
    x = li.input("x", (T, B, H), kind)

    def cell(h: Any, x: Any) -> Any:
        h = h * 0.5 + x
        return h, h - 1.0

    h, y, steps = li.scan(cell, li.zeros((B, H), kind), x, until=lambda h, y: li.sum(h * h, 1) > 9.0)
    return li.Graph("rows", [x], {"h": h, "y": y, "steps": steps, "loss": li.sum(y * y) + li.sum(h * h * h)})


def rows_of_numpy(x: Array) -> dict[str, Array]:
    x = x.astype("f8")
    h, y, steps = np.zeros((B, H)), np.zeros_like(x), np.zeros(B, "i4")
    for b in range(B):
        for t in range(len(x)):
            h[b] = h[b] * 0.5 + x[t, b]
            y[t, b] = h[b] - 1
            steps[b] += 1
            if (h[b] ** 2).sum() > 9:
                break
    return {"h": h, "y": y, "steps": steps, "loss": (y * y).sum() + (h**3).sum()}


@pytest.mark.parametrize("seed", range(3))
def test_rows_are_held_when_they_are_done(seed: int) -> None:
    x = arrays(50, "f4", seed)["x"] * 1.2
    want = rows_of_numpy(x)
    assert len(set(want["steps"])) > 1
    same(li.interpret(by_row(), x=x), want)
    same(li.compile(by_row())(x=x), want)


def test_the_loop_ends_with_its_last_row() -> None:
    """It is not merely masked: a step after the last one would divide by zero rows that are counted."""
    x = arrays(50, "f4", 1)["x"] * 1.2
    runs = int(rows_of_numpy(x)["steps"].max())
    graph = by_row()
    (loop,) = (n for n in graph.nodes if n.op.name == "scan")
    counted = Loop(loop).steps
    assert counted is not None
    seen = li.Graph("seen", graph.params, {"ran": counted})
    assert runs < 50
    assert li.interpret(seen, x=x)["ran"] == runs
    assert li.compile(seen)(x=x)["ran"] == runs


# -- gradients


@pytest.mark.parametrize("remat", [None, 1, 4, 100])
@pytest.mark.parametrize("name", ["whole", "rows"])
def test_gradients(name: str, remat: int | None) -> None:
    """Central differences, where no small change makes a loop end earlier or later."""
    graph, given = (whole(kind="f64"), arrays(20, "f8")) if name == "whole" else (by_row(kind="f64"), {})
    if name == "whole":
        given["end"] = ends_after(11, given)
    else:
        given = {"x": arrays(20, "f8", 1)["x"] * 1.2}
    names = ["x", "w"] if name == "whole" else ["x"]
    back = li.grad(graph, "loss", names, remat=remat)
    li.verify(back)
    assert str(li.parse(str(back))) == str(back)
    got = li.interpret(back, given)
    rng = np.random.default_rng(8)
    for n in names:
        along, e = rng.normal(size=given[n].shape), 1e-6
        ends = [li.interpret(graph, {**given, n: given[n] + s * e * along}) for s in (1, -1)]
        assert (ends[0]["steps"] == ends[1]["steps"]).all()
        want = float(ends[0]["loss"] - ends[1]["loss"]) / (2 * e)
        have = float((got[f"d_{n}"] * along).sum())
        assert abs(have - want) <= 1e-6 * max(1.0, abs(want)), (n, have, want)
    assert not got["d_x"][int(np.max(li.interpret(graph, given)["steps"])) :].any()


@pytest.mark.parametrize("remat", [None, pytest.param(6, marks=pytest.mark.slow)])
def test_gradients_compiled(remat: int | None) -> None:
    given = arrays(40)
    given["end"] = ends_after(33, given)
    back = li.grad(whole(), "loss", ["x", "w"], remat=remat)
    exe = li.compile(back)
    want = li.interpret(li.grad(whole(kind="f64"), "loss", ["x", "w"]), {k: v.astype("f8") for k, v in given.items()})
    same(exe(given), want, 2e-4)


def test_the_forward_loop_runs_once() -> None:
    """The loop and its twin are one; the way back is a loop of as many steps."""
    loops = [n for n in li.grad(whole(), "loss", ["w"]).nodes if n.op.name == "scan"]
    assert [n.attrs["until"] for n in loops] == [True, False]
    assert loops[1].arg("count") is Loop(loops[0]).steps


def test_a_matrix_state_is_not_cut_into_chunks() -> None:
    """Linear attention that ends: its gradient is that of the loop of so many steps."""
    D = 32
    q, k, v = (li.input(n, ("T", B, D), "f64") for n in "qkv")

    def attend(s: Any, x: Any) -> Any:
        s = s * 0.9 + li.expand_dims(x[1], 2) * li.expand_dims(x[2], 1)
        return s, li.einsum("bk,bkv->bv", x[0], s)

    def ends(T: int | None) -> li.Graph:
        more: dict[str, Any] = {"until": lambda s, y: li.max(y) > 5.0} if T is None else {}
        rows = tuple(a if T is None else a[:T] for a in (q, k, v))
        _, y, *steps = li.scan(attend, li.zeros((B, D, D), "f64"), rows, **more)
        return li.Graph("g", [q, k, v], {"loss": li.sum(y * y), **({"n": steps[0]} if steps else {})})

    rng = np.random.default_rng(2)
    given = {n: rng.normal(size=(24, B, D)) / 2 for n in "qkv"}
    n = int(li.interpret(ends(None), given)["n"])
    assert 1 < n < 24
    got = li.interpret(li.grad(ends(None), "loss", ["q", "k", "v"]), given)
    want = li.interpret(li.grad(ends(n), "loss", ["q", "k", "v"]), {k: a[:n] for k, a in given.items()})
    for name in ("d_q", "d_k", "d_v"):
        np.testing.assert_allclose(got[name][:n], want[name], rtol=1e-10, atol=1e-10)
        assert not got[name][n:].any()


# -- texts, passes, refusals


def test_passes_keep_it() -> None:
    """Constants leave the loop, products become one; its end is as it was."""
    x, w = li.input("x", ("T", B, H)), li.weight("w", np.eye(H, dtype="f4"))
    u = li.weight("u", np.ones((H, H), "f4"))

    def cell(h: Any, x: Any, w: Any) -> Any:
        return li.tanh(h @ li.exp(w)) + h @ u + x, li.sum(h, 1)

    h, y, n = li.scan(cell, li.zeros((B, H)), x, w, until=lambda h, y: li.sum(y) > 8.0)
    graph = li.Graph("g", [x], {"h": h, "y": y, "n": n})
    made = Pipeline.parse("default").run(graph).graph
    (loop,) = (Loop(n) for n in made.nodes if n.op.name == "scan")
    assert loop.until
    inside = [m.op.name for m in loop.body.nodes]
    assert "exponential" not in inside
    assert inside.count("dot_general") == 1
    given = np.random.default_rng(1).normal(size=(30, B, H)).astype("f4")
    same(li.interpret(made, x=given), li.interpret(graph, x=given), 1e-5)
    assert 1 < li.interpret(graph, x=given)["n"] < 30


def test_text() -> None:
    graph = whole()
    assert "until=true" in str(graph)
    assert str(li.parse(str(graph))) == str(graph)
    for old, new, problem in (
        ("until=true", "until=false", "reverse has 3 flags for 4 scanned and stacked values"),
        ("reverse=[false, ", "reverse=[true, ", "until does not go with reverse"),
        ("return %3, %5, ", "return %3, %8, ", r"the body's result behind its carries is f32\[3,5\], not i1"),
    ):
        assert old in str(graph)
        with pytest.raises(li.IRError, match=problem):
            li.parse(str(graph).replace(old, new))


def flag(**options: Any) -> Any:
    x = li.input("x", (7, B, H))
    default = {"until": lambda h, y: li.sum(h) > 1.0}
    return li.scan(lambda h, x: (h + x, h), li.zeros((B, H)), x, **{**default, **options})


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"until": 3}, "until is 3; expected a function of carry and y"),
        ({"until": lambda h, y: True}, r"until must return a value i1\[\] or i1\[B\], got bool"),
        ({"until": lambda h, y: li.sum(h)}, r"until must return i1\[\] or i1\[B\], got f32\[\]"),
        ({"until": lambda h, y: h > 0.0}, r"until must return i1\[\] or i1\[B\], got i1\[3,5\]"),
        ({"until": lambda h, y: li.sum(h, 0) > 0.0}, r"until i1\[5\] needs carries of 5 rows, got f32\[3,5\]"),
        ({"reverse": True}, "until does not go with reverse"),
        ({"lengths": li.input("lengths", (B,), "i32")}, "until does not go with lengths"),
    ],
)  # fmt: skip
def test_what_is_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(li.IRError, match=problem):
        flag(**options)
