"""The words of `precision` on AArch64 under qemu, beside x86-64, and on Vulkan, where bf16 is refused by name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aarch64_run
import numpy as np
import pytest
from device import need, qemu

import lstm_ir as li
from lstm_ir.api import Report, optimize
from lstm_ir.backends.run.devices import resolve
from lstm_ir.ir.program import Program

WORDS = ("bf16", "f16", "int8", "int8-dynamic")
T, B, I, H = 4, 3, 12, 20


def layers(rng: np.random.Generator) -> Program:
    """An LSTM and a GRU over the same rows; sizes that are no multiple of a vector."""
    x = li.input("x", (T, B, I))
    graphs = {}
    for name, gates, build in (("lstm", 4, li.lstm), ("gru", 3, li.gru)):
        w, r = (rng.uniform(-1, 1, (gates * H, k)).astype("f4") for k in (I, H))
        graphs[name] = li.Graph(name, [x], {"y": build(x, li.weight(f"{name}/w", w), li.weight(f"{name}/r", r)).y})
    return Program("layers", graphs)


def meaning(program: Program, word: str, x: Any) -> dict[str, Any]:
    """The NumPy meaning of what the pass `precision` makes: weights rounded as the word says."""
    made = optimize(program, resolve("cpu"), Report("rounded"), precision=word)
    return {n: li.interpret(g, x=x)["y"] for n, g in made.entries.items()}


@pytest.mark.slow
@pytest.mark.parametrize("target", ["cpu:aarch64", "cpu:aarch64-dotprod"])
@pytest.mark.parametrize("word", WORDS)
def test_aarch64_gives_what_x86_gives(word: str, target: str, tmp_path: Path, rng: np.random.Generator) -> None:
    qemu()
    program, x = layers(rng), rng.standard_normal((T, B, I)).astype("f4")
    report = aarch64_run.compiled(tmp_path, program, target, precision=word)
    assert sum(": kernel, " in n for n in report.notes if n.startswith("scan at")) == 2
    want = meaning(program, word, x)
    with li.compile(program, options={"precision": word}) as exe:
        for name, graph in program.entries.items():
            got = aarch64_run.run(tmp_path, name, graph, {"x": x}, "--device=local-sync")["y"]
            np.testing.assert_allclose(got, exe.entries[name](x=x)["y"], rtol=2e-5, atol=2e-5, err_msg=name)
            np.testing.assert_allclose(got, want[name], rtol=2e-5, atol=2e-5, err_msg=name)


@pytest.mark.vulkan
@pytest.mark.parametrize(
    "word", [pytest.param("f16", marks=pytest.mark.slow), "int8", pytest.param("int8-dynamic", marks=pytest.mark.slow)]
)
def test_vulkan_is_right(word: str, tmp_path: Path, rng: np.random.Generator) -> None:
    """Compiled, and from a package."""
    need("vulkan")
    program, x = layers(rng), rng.standard_normal((T, B, I)).astype("f4")
    want = meaning(program, word, x)
    wide = {n: li.interpret(g, x=x)["y"] for n, g in program.entries.items()}
    assert all(np.abs(want[n] - wide[n]).max() > 1e-5 for n in want)
    with li.compile(program, "vulkan", options={"precision": word}) as exe:
        for n, y in want.items():
            np.testing.assert_allclose(exe.entries[n](x=x)["y"], y, rtol=2e-5, atol=2e-5, err_msg=n)
    made = li.export(program, tmp_path / "m.lirpkg", ["vulkan"], options={"precision": word})
    with li.load(made, device="vulkan") as exe:
        for n, y in want.items():
            np.testing.assert_allclose(exe.entries[n](x=x)["y"], y, rtol=2e-5, atol=2e-5, err_msg=n)


def test_bf16_is_refused_by_name_on_vulkan(tmp_path: Path, rng: np.random.Generator) -> None:
    program = layers(rng)
    for make in (
        lambda: li.compile(program, "vulkan", options={"precision": "bf16"}),
        lambda: li.export(program, tmp_path / "m.lirpkg", ["vulkan"], options={"precision": "bf16"}),
    ):
        with pytest.raises(li.LstmIrError, match="bf16") as caught:
            make()
        assert "vulkan" in str(caught.value).lower()
    assert not (tmp_path / "m.lirpkg").exists()


@pytest.mark.vulkan
@pytest.mark.slow
def test_masters_are_rounded_on_vulkan_too(rng: np.random.Generator) -> None:
    """What `train_step` rounds to bf16 stays f32 with fewer bits: no memory of bf16 is asked for."""
    need("vulkan")
    x, w = li.input("x", (B, I)), li.weight("w", rng.standard_normal((H, I)).astype("f4"))
    graph = li.Graph("g", [x], {"loss": li.sum(li.tanh(li.dense(x, w)))})
    programs = {word: li.train_step(graph, "loss", li.sgd(0.1), grads=True, precision=word) for word in ("bf16", None)}
    found: dict[Any, Any] = {}
    for word, program in programs.items():
        arrays = {"x": rng.standard_normal((B, I)).astype("f4")} if not found else found["arrays"]
        found["arrays"] = arrays
        want = li.interpret(program.entries["grads"], **arrays, w=w.node.attrs["value"].array)
        with li.compile(program, "vulkan") as exe:
            got = exe.entries["grads"](arrays)
            np.testing.assert_allclose(got["d_w"], want["d_w"], rtol=2e-5, atol=2e-5)
        found[word] = got["d_w"]
    assert np.abs(found["bf16"] - found[None]).max() > 1e-5
