"""Every cell of examples/cells/ gives what its equations give, by torch.

Values, and gradients by all weights and inputs: interpreted, compiled for this processor with and without kernels, and
on Vulkan. JAX agrees with torch: test_gallery_peers.py.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from cell_gallery import NAMES, cell, inputs, step
from cell_references import CELLS
from cell_runs import torch_run
from device import need
from tolerances import RECURRENCE, close, wide

import lstm_ir as li

Arrays = dict[str, Any]
I, H = 5, 12
PLANES = (16, 24)  # of conv_lstm and conv_gru: eights are channels
SIZES = ((7, 3), (1, 1), (1, 4), (5, 1))
WIDTH = {"f32": "f4", "f64": "f8"}
ONE_OF_EACH_KIND = ("cfc", "conv_lstm", "ind_rnn", "min_gru", "retnet", "slstm")


def widths(name: str) -> tuple[int, int]:
    return PLANES if name.startswith("conv_") else (I, H)


def program(name: str, T: int | str, B: int | str, dtype: str, seed: int) -> li.Program:
    graph = cell(name).build(T, B, *widths(name), dtype, seed)
    return li.Program(name, {"infer": graph, "step": step(graph)})


def arrays(made: li.Program, name: str, T: int, B: int, dtype: str, seed: int) -> tuple[Arrays, Arrays]:
    """Inputs and weights as the graph has them."""
    weights = cell(name).weights(*widths(name), seed)
    rounded = {k: np.asarray(a, WIDTH[dtype]) for k, a in weights.items()}
    return inputs(made.entries["infer"], T, B, seed, WIDTH[dtype]), rounded


def compare(call: Any, made: li.Program, name: str, dtype: str, device: str, seed: int, sizes: Any = SIZES) -> None:
    for T, B in sizes:
        given, weights = arrays(made, name, T, B, dtype, seed)
        got = {**call("infer", given), **call("step", given)}
        want = torch_run(name, wide(given), wide(weights))
        assert got.keys() == want.keys() == {"y", "loss", *(f"d_{k}" for k in (*given, *weights))}
        assert all(a.dtype == WIDTH[dtype] and a.shape == want[k].shape for k, a in got.items())
        largest = max(np.abs(a).max() for k, a in want.items() if k.startswith("d_"))
        unit = 4 * np.finfo(WIDTH[dtype]).eps * largest  # roundings of terms that cancel: with one step, d_W_k of mlstm
        far = {k: a for k, a in want.items() if not k.startswith("d_") or np.abs(got[k] - a).max() > unit}
        close(got, far, RECURRENCE[dtype, device], (name, T, B), lambda g=given, w=weights: torch_run(name, g, w))


def test_every_cell_has_a_reference() -> None:
    assert set(NAMES) == set(CELLS)


@pytest.mark.parametrize("name", NAMES)
def test_the_meaning_is_that_of_the_equations(name: str, seed: int) -> None:
    """In f64, to the last digits; every gradient is there, and none is zero for want of a path."""
    need("torch")
    made = program(name, "T", "B", "f64", seed)
    compare(lambda entry, given: li.interpret(made.entries[entry], given), made, name, "f64", "cpu", seed)
    given, weights = arrays(made, name, *SIZES[0], "f64", seed)
    slopes = li.interpret(made.entries["step"], given)
    assert all(np.abs(a).max() > 0 for a in slopes.values())
    assert weights.keys() == made.entries["step"].weights.keys()


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_compiled_with_open_sizes(name: str, seed: int) -> None:
    need("torch")
    made = program(name, "T", "B", "f32", seed)
    with li.compile(made) as exe:
        compare(lambda entry, given: exe.entries[entry](given), made, name, "f32", "cpu", seed)


def one_size(name: str, dtype: str, kernels: bool, sizes: tuple[int, int], seed: int) -> None:
    need("torch")
    made = program(name, *sizes, dtype, seed)
    with li.compile(made, options={"kernels": kernels}) as exe:
        compare(lambda entry, given: exe.entries[entry](given), made, name, dtype, "cpu", seed, [sizes])


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[] if n in ONE_OF_EACH_KIND else pytest.mark.slow) for n in NAMES]
)
def test_compiled(name: str, kernels: bool, seed: int) -> None:
    one_size(name, "f32", kernels, (6, 3), seed)


OTHERWISE = {
    "f64": ("f64", True, (6, 3)),
    "one_step_of_one_row": ("f64", True, (1, 1)),
    "loops": ("f32", False, (6, 3)),
    "chunks": ("f64", True, (150, 2)),  # more steps than a chunk, and no multiple of one
}


@pytest.mark.slow
@pytest.mark.parametrize("how", OTHERWISE)
@pytest.mark.parametrize("name", NAMES)
def test_compiled_otherwise(name: str, how: str, seed: int) -> None:
    one_size(name, *OTHERWISE[how], seed)


@pytest.mark.slow
@pytest.mark.vulkan
@pytest.mark.parametrize("name", NAMES)
def test_on_vulkan(name: str, seed: int) -> None:
    need("vulkan")
    need("torch")
    made = program(name, 4, 2, "f32", seed)
    with li.compile(made, "vulkan") as exe:
        compare(lambda entry, given: exe.entries[entry](given), made, name, "f32", "vulkan", seed, [(4, 2)])
