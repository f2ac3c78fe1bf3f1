"""Ops where definitions have corners: factors that are no whole numbers, large numbers, axes beyond two."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li

need("torch")
from torch_cases import held  # noqa: E402  it needs torch


def function(run: Callable[..., Any]) -> Any:
    """A module whose forward is `run` of two tensors."""
    import torch

    class Function(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any, y: Any) -> Any:
            return run(x, y)

    return Function()


def pair(x: Any, y: Any = None) -> tuple[Any, Any]:
    import torch

    return x, torch.zeros(2) if y is None else y


def wider(factor: Any) -> Callable[[Any, Any], Any]:
    import torch

    return lambda x, y: torch.nn.functional.interpolate(x, scale_factor=factor) + y[0]


@pytest.mark.parametrize(("shape", "factor"), [((1, 2, 2), 2.4), ((1, 2, 3), 1.3), ((1, 1, 2, 3), (2.0, 1.3))])
def test_a_factor_that_is_no_whole_number(shape: tuple[int, ...], factor: Any) -> None:
    """Two elements by 2.4 are four, of which the first three are one: not each of them twice."""
    import torch

    with pytest.raises(li.ModelError, match=r"upsample_nearest.*by the factor (2\.4|1\.3), which is no whole number"):
        li.from_torch(function(wider(factor)), pair(torch.randn(shape)))


@pytest.mark.parametrize(("shape", "factor"), [((1, 2, 1), 2.4), ((1, 2, 3), 3.0), ((1, 1, 2, 3), (2.0, 1.0))])
def test_a_factor_that_repeats_each_equally_often(
    shape: tuple[int, ...], factor: Any, rng: np.random.Generator
) -> None:
    import torch

    held(function(wider(factor)), pair(torch.randn(shape)), None, [], rng)


def test_a_factor_over_an_open_size(rng: np.random.Generator) -> None:
    import torch

    example, more = pair(torch.randn(2, 3, 5)), [pair(torch.randn(4, 3, 7))]
    held(function(wider(2.0)), example, {"x": ("B", None, "T"), "y": (None,)}, more, rng)


@pytest.mark.parametrize("name", ["sinh", "cosh"])
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_hyperbolic_functions_of_large_numbers(name: str, dtype: str, rng: np.random.Generator) -> None:
    """sinh(89) is a number of f32, e^89 is none; of small numbers all digits are right."""
    import torch

    top = {"float32": 89.0, "float64": 710.0, "float16": 11.5}[dtype]
    x = torch.tensor([-top, -5, -1e-3, -0.0, 0.0, 1e-6, 1, 20 if top > 20 else 9, top], dtype=getattr(torch, dtype))
    graph = li.from_torch(function(lambda x, y: getattr(torch, name)(x) + y[:1].to(x.dtype) * 0), pair(x))
    (got,) = li.interpret(graph, x=x.numpy(), y=np.zeros(2, "f4")).values()
    want = getattr(torch, name)(x).numpy()
    assert np.isfinite(want).all()
    np.testing.assert_allclose(got, want, rtol={"float32": 2e-6, "float64": 1e-14, "float16": 1e-3}[dtype])
    ends = torch.tensor([np.inf, -np.inf, np.nan], dtype=x.dtype)
    wide = li.from_torch(function(lambda x, y: getattr(torch, name)(x) + y[:1].to(x.dtype) * 0), pair(ends))
    (got,) = li.interpret(wide, x=ends.numpy(), y=np.zeros(2, "f4")).values()
    np.testing.assert_array_equal(got, getattr(torch, name)(ends).numpy())


@pytest.mark.parametrize("name", ["sinh", "cosh"])
def test_slopes_of_large_numbers(name: str, rng: np.random.Generator) -> None:
    import torch

    x = torch.tensor([87.0, -87.0, 0.0, 3.0])
    held(function(lambda x, y: getattr(torch, name)(x) + y[0]), pair(x), None, [], rng)


PRODUCTS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "addmm": lambda t, x, y: t.addmm(y, x[0], x[1], beta=0),
    "addmv": lambda t, x, y: t.addmv(y, x[0], x[1, 0], beta=0),
    "addbmm": lambda t, x, y: t.addbmm(y, x, x, beta=0, alpha=2),
    "baddbmm": lambda t, x, y: t.baddbmm(y, x, x, beta=0, alpha=2),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_a_sum_without_its_first(name: str) -> None:
    """With beta 0 what is added does not count, NaN and infinities neither."""
    import torch

    x, y = torch.randn(2, 3, 3), torch.tensor([np.nan, np.inf, 1.0])
    module = function(lambda x, y: PRODUCTS[name](torch, x, y))
    want = module(x, y).numpy()
    assert np.isfinite(want).all()
    (got,) = li.interpret(li.from_torch(module, (x, y)), x=x.numpy(), y=y.numpy()).values()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-6)


@pytest.mark.filterwarnings("ignore:The use of")
@pytest.mark.parametrize("shape", [(2, 3, 4), (2, 3, 4, 5), (2, 3), (3,), ()], ids=str)
def test_all_axes_reversed(shape: tuple[int, ...], rng: np.random.Generator) -> None:
    import torch

    module = function(lambda x, y: torch.ops.aten.numpy_T.default(x) * 2 + y[0])
    graph = held(module, pair(torch.randn(shape)), None, [], rng)
    assert graph.outputs[0].shape == shape[::-1]


@pytest.mark.parametrize("accumulate", [False, True])
def test_places_whose_lists_broadcast(accumulate: bool, rng: np.random.Generator) -> None:
    """x[a[:, None], b[None, :]] = v: one element for each pair."""
    import torch

    def run(x: Any, y: Any) -> Any:
        rows, columns = torch.tensor([[2], [0]]), torch.tensor([[1, -1, 0]])
        return torch.index_put(x, (rows, columns), y, accumulate)

    for values in (torch.randn(2, 3), torch.randn(3), torch.randn(2, 1), torch.randn(())):
        held(function(run), (torch.randn(3, 4), values), None, [], rng)
    for values in (torch.randn(2, 3, 5), torch.randn(5), torch.randn(2, 1, 1)):
        held(function(run), (torch.randn(3, 4, 5), values), None, [], rng)


def test_rows_that_a_loop_reads_twice(rng: np.random.Generator) -> None:
    """Rows 2, 3, 2, 3: the step compares with 2 and adds 2, where an index from the end has 0 and the size."""
    import torch
    from torch._higher_order_ops import while_loop

    def run(x: Any, y: Any) -> Any:
        def body(i: Any, h: Any) -> Any:
            j = torch.where(i < 2, i + 2, i)
            return i + 1, h * 0.5 + x.index_select(0, j.reshape(1)).squeeze(0)

        return while_loop(lambda i, h: i < x.shape[0], body, (torch.zeros((), dtype=torch.int64), y))[1]

    x, y = torch.randn(4, 2), torch.randn(2)
    graph = li.from_torch(function(run), (x, y))
    (got,) = li.interpret(graph, x=x.numpy(), y=y.numpy()).values()
    want = y.numpy().astype("f8")
    for row in (2, 3, 2, 3):
        want = want * 0.5 + x.numpy()[row]
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
