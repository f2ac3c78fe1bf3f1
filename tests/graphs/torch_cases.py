"""Modules of PyTorch imported, and run beside themselves: results, and gradients of weights and inputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

import lstm_ir as li

LIMIT = {"float32": 2e-5, "float64": 1e-11, "float16": 2e-2, "bfloat16": 1e-1}  # of the largest element
Arrays = dict[str, Any]


def leaves(tree: Any) -> list[Any]:
    """The tensors of nested results, in order."""
    import torch

    return [v for v in torch.utils._pytree.tree_leaves(tree) if isinstance(v, torch.Tensor)]


def arrays_of(graph: li.Graph, args: Sequence[Any], kwargs: Mapping[str, Any] | None = None) -> Arrays:
    """The arguments of a call by the names of the graph's inputs; the number of the call is 0."""
    given = [v.detach().cpu().numpy() if hasattr(v, "numpy") else np.asarray(v) for v in leaves((args, kwargs or {}))]
    names = [n for n in graph.input_names if n != "step"]
    found = dict(zip(names, given, strict=True))
    return found | ({"step": np.int64(0)} if "step" in graph.input_names else {})


def close(got: Any, want: Any, what: str, factor: float = 1.0) -> None:
    """One array beside the one it has to be, by shape, dtype and value."""
    want = want.detach().cpu()
    kind = str(want.dtype).removeprefix("torch.")
    assert (got.shape, got.dtype.name) == (tuple(want.shape), kind), (
        what,
        got.shape,
        got.dtype,
        want.shape,
        want.dtype,
    )
    exact = want.double().numpy() if want.dtype.is_floating_point else want.numpy()
    if not want.dtype.is_floating_point:
        np.testing.assert_array_equal(got, exact, what)
        return
    found = got.astype("f8")
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact), what)
    worst = np.nanmax(np.abs(np.where(found == exact, 0, found - exact)), initial=0)
    assert worst <= LIMIT[kind] * factor * max(1.0, np.nanmax(np.abs(exact), initial=0, where=np.isfinite(exact))), (
        what, worst,
    )  # fmt: skip


def results(graph: li.Graph, run: Callable[[Arrays], Mapping[str, Any]], module: Any, args: Sequence[Any]) -> None:
    """What a call gives beside what the module gives."""
    import torch

    with torch.no_grad():
        wanted = leaves(module(*args))
    got = run(arrays_of(graph, args))
    assert list(got) == list(graph.output_names)
    for (name, array), want in zip(got.items(), wanted, strict=True):
        close(np.asarray(array), want, name)


def gradients(
    graph: li.Graph, module: Any, args: Sequence[Any], rng: np.random.Generator, targets: Sequence[str] = ()
) -> None:
    """Gradients of all weights and float inputs, for drawn cotangents of all float outputs; by `targets` too."""
    import torch

    inputs = [v.detach().clone().requires_grad_(v.dtype.is_floating_point) for v in leaves(args)]
    left = iter(inputs)
    spec = torch.utils._pytree
    flat, tree = spec.tree_flatten(tuple(args))
    again = spec.tree_unflatten([next(left) if isinstance(v, torch.Tensor) else v for v in flat], tree)
    wanted = [(n, y) for n, y in zip(graph.output_names, leaves(module(*again)), strict=True)
              if y.requires_grad and y.dtype.is_floating_point]  # fmt: skip
    cts = {n: rng.standard_normal(tuple(y.shape)).astype(str(y.dtype).removeprefix("torch.")) for n, y in wanted}
    by_name = dict(zip([n for n in graph.input_names if n != "step"], inputs, strict=True))
    wrt = {n: v for n, v in by_name.items() if v.requires_grad}
    state = dict(module.named_parameters())
    wrt |= {n: state[n] for n in graph.weights}
    found = torch.autograd.grad(
        [y for _, y in wanted], list(wrt.values()), [torch.from_numpy(cts[n]) for n, _ in wanted], allow_unused=True
    )  # fmt: skip
    backward = li.vjp(graph, of=[n for n, _ in wanted], wrt=list(wrt), missing="zeros")
    given = {**arrays_of(graph, args), **{f"ct_{n}": a for n, a in cts.items()}}
    made = {"": li.interpret(backward, given)}
    for target in targets:
        with li.compile(backward, target) as exe:
            made[f" on {target}"] = {n: np.asarray(a) for n, a in exe(given).items()}
    for where, got in made.items():
        for (name, leaf), want in zip(wrt.items(), found, strict=True):
            close(got[f"d_{name}"], torch.zeros_like(leaf) if want is None else want, f"d_{name}{where}", factor=5)


def held(
    module: Any,
    example: Sequence[Any],
    sizes: Mapping[str, Any] | None,
    calls: Sequence[Sequence[Any]],
    rng: np.random.Generator,
    *,
    grad: bool = True,
    targets: Sequence[str] = (),
    beside: Any = None,
) -> li.Graph:
    """The graph of a module, whose results and gradients are PyTorch's at every call, by its meaning and compiled.

    beside: a module with the same weights that says what they are, where the module itself takes long to run.
    """
    graph = li.from_torch(module, tuple(example), sizes=sizes)
    right = module if beside is None else beside
    for args in (example, *calls):
        results(graph, lambda given: li.interpret(graph, given), right, args)
    if grad:
        gradients(graph, right, calls[-1] if calls else example, rng, targets)
    for target in targets:
        with li.compile(graph, target) as exe:
            for args in (example, *calls):
                results(graph, exe, right, args)
    return graph
