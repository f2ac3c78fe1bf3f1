"""What an export assumed of the open sizes, tried at sizes where it does not hold.

PyTorch notes each comparison of sizes on the way (guards), and takes open sizes to be neither 0 nor 1. The module is
exported again, at numbers that break a guard, and at 1. What PyTorch refuses there the module does not take either;
what it takes has to be the same ops, or other ops with the same results: a branch of the module that is not in the
graph is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from lstm_ir.importers.torch.exporting import NotExportedError, program, shape_env
from lstm_ir.importers.torch.functional import op_name
from lstm_ir.importers.torch.interface import Example
from lstm_ir.importers.torch.places import of_guard, of_node
from lstm_ir.importers.torch.replay import same_results
from lstm_ir.importers.torch.symbols import expression
from lstm_ir.ir import dims
from lstm_ir.ir.dims import Dim

NUMBERS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 17, 33, 64, 100, 1001)  # tried for one size
FEW = (1, 2, 3, 8, 33)  # tried for each of several
MOST = 125  # combinations that are looked at for one guard
_ADVICE = "name no size whose number the module asks for"
_SILENT = ("aten.sym_size.int", "aten._assert_scalar.default", "aten._assert_tensor_metadata.default",
           "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default")  # fmt: skip


def check(module: Any, example: Example, ep: Any) -> None:
    """NotExportedError where the module does something else at sizes that the caller leaves open."""
    if not example.values:
        return
    meant = _meant(example, ep)
    for values, why in _tries(example, ep, meant):
        args, kwargs = example.call(values)
        try:
            fixed = program(module, args, kwargs)
        except Exception:  # sizes that the module does not take, whatever it says
            continue
        sizes = {s: dims.evaluate(d, values) for s, d in meant.items()}
        found = _difference(ep, fixed, sizes)
        if found and not same_results(ep, fixed, (args, kwargs)):
            raise NotExportedError.over(example, f"{_told(example.values, values)}{why}: {found}; {_ADVICE}")


def _told(usual: Mapping[str, int], values: Mapping[str, int]) -> str:
    at, before = (", ".join(f"{n} = {k}" for n, k in v.items()) for v in (values, usual))
    return f"at {at} the module does something else than at {before}"


def _meant(example: Example, ep: Any) -> dict[str, Dim]:
    """By symbol its size."""
    users = [n for n in ep.graph.nodes if n.op == "placeholder" and isinstance(n.meta.get("val"), torch.Tensor)]
    found: dict[str, Dim] = {}
    for n, i in zip(users[len(users) - len(example.inputs) :], example.inputs, strict=True):
        for d, size in zip(n.meta["val"].shape, i.shape, strict=True):
            if not isinstance(d, int) and expression(d).is_Symbol:
                found[expression(d).name] = size
    return found


def _tries(example: Example, ep: Any, meant: Mapping[str, Dim]) -> Iterator[tuple[dict[str, int], str]]:
    """Numbers for the named sizes, and where PyTorch's assumption that they break was made."""
    seen: set[tuple[int, ...]] = set()
    for values, why in itertools.chain(_broken(example, ep, meant), _ones(example)):
        key = tuple(values.values())
        if key not in seen:
            seen.add(key)
            yield values, why


def _ones(example: Example) -> Iterator[tuple[dict[str, int], str]]:
    for name in example.values:
        yield {**example.values, name: 1}, ""


def _broken(example: Example, ep: Any, meant: Mapping[str, Dim]) -> Iterator[tuple[dict[str, int], str]]:
    """For each guard the least and the largest numbers of those tried that break it."""
    env = shape_env(ep)
    guards = {} if env is None else {str(g.expr): g for g in env.guards}
    for guard in guards.values():
        free = [s for s in guard.expr.free_symbols if s.name in meant]
        names = sorted(set().union(*(dims.names(meant[s.name]) for s in free)))
        breaking = []
        tried = itertools.product(NUMBERS if len(names) == 1 else FEW, repeat=len(names))
        for numbers in itertools.islice(tried, MOST):
            values = {**example.values, **dict(zip(names, numbers, strict=True))}
            sizes = {s: dims.evaluate(meant[s.name], values) for s in free}
            if _breaks(guard.expr, sizes):
                breaking.append(values)
        for values in breaking[:1] + breaking[-1:]:
            yield values, of_guard(guard)


def _breaks(e: Any, sizes: Mapping[Any, int]) -> bool:
    try:
        return bool(e.subs(sizes) == False)  # noqa: E712  sympy has a truth of its own
    except (ArithmeticError, AssertionError):  # a division by a size that is 0 there, a remainder of one below 0
        return False


def _difference(ep: Any, fixed: Any, sizes: Mapping[str, int]) -> str:
    """The first op in which an open program differs from one at numbers; empty where there is none."""
    ours, theirs = _ops(ep, sizes), _ops(fixed, {})
    for a, b in itertools.zip_longest(ours, theirs):
        if a is None or b is None or a[:2] != b[:2]:
            names = [x[0] if x else "nothing" for x in (a, b)]
            told = f"{names[1]} where it had {names[0]}" if names[0] != names[1] else f"{names[0]} of other arguments"
            return f"{told}{of_node(b[2]) if b else ''}"
    return ""


def _ops(ep: Any, sizes: Mapping[str, int]) -> list[tuple[str, Any, Any]]:
    """Ops on tensors in order, their arguments as numbers and as places of the ops that made them."""
    places: dict[Any, Any] = {}
    out: list[tuple[str, Any, Any]] = []
    for n in ep.graph.nodes:
        if n.op == "placeholder":
            places[n] = n.name
        if n.op != "call_function" or isinstance(n.meta.get("val"), (torch.SymInt, torch.SymFloat, torch.SymBool)):
            continue
        name = op_name(n.target)
        if name in _SILENT:
            continue
        args = [_argument(a, places, sizes) for a in (*n.args, *n.kwargs.values())]
        places[n] = len(out)
        out.append((name, args, n))
    out += [("output", _argument(a, places, sizes), n) for n in ep.graph.nodes if n.op == "output" for a in n.args]
    return out


def _argument(a: Any, places: Mapping[Any, Any], sizes: Mapping[str, int]) -> Any:
    if isinstance(a, torch.fx.Node):
        val = a.meta.get("val")
        if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return _number(expression(val), sizes)
        return ("node", places.get(a, a.op))
    if isinstance(a, (tuple, list)):
        return [_argument(x, places, sizes) for x in a]
    return repr(a) if isinstance(a, float) else a


def _number(e: Any, sizes: Mapping[str, int]) -> Any:
    left = {s: sizes[s.name] for s in e.free_symbols if s.name in sizes}
    try:
        found = e.subs(left)
    except (ArithmeticError, AssertionError):  # as in _breaks
        return "none"
    return int(found) if found.is_Integer else "open" if found.free_symbols else repr(float(found))
