"""The dispatches of a module that is written: found, and given another kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iree.compiler import ir


def dispatches(op: ir.Operation) -> Iterator[tuple[ir.Operation, str]]:
    """Dispatches inside `op`, each with the symbol of its executable."""
    for region in op.regions:
        for block in region:
            for inner in block:
                if inner.operation.name == "flow.dispatch":
                    entry = str(inner.attributes["entry_points"][0])
                    yield inner.operation, entry.partition("::")[0].strip('@"')
                else:
                    yield from dispatches(inner.operation)


def constant(n: int, before: ir.Operation) -> ir.Value:
    """An index."""
    index = ir.IndexType.get()
    with ir.InsertionPoint(before), before.location:
        attrs = {"value": ir.IntegerAttr.get(index, n)}
        return ir.Operation.create("arith.constant", results=[index], attributes=attrs).result


def redirect(
    op: ir.Operation, symbol: str, function: str, more: Sequence[ir.Value], count: ir.Value | None = None
) -> None:
    """The dispatch runs `function` of the executable `symbol`, which takes `more` arguments, in `count` workgroups
    or as many as before."""
    attrs = {name: op.attributes[name] for name in op.attributes}
    total, arguments, *dims = ir.DenseI32ArrayAttr(attrs["operandSegmentSizes"])
    given, at = list(op.operands), total + arguments
    groups = given[:total] if count is None else [count]
    attrs["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(groups), arguments + len(more), *dims])
    attrs["entry_points"] = ir.ArrayAttr.get([ir.Attribute.parse(f"@{symbol}::@{function}")])
    with ir.InsertionPoint(op), op.location:
        new = ir.Operation.create(
            op.name, results=[r.type for r in op.results],
            operands=[*groups, *given[total:at], *more, *given[at:]], attributes=attrs,
        )  # fmt: skip
    for old, v in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(v)
    op.erase()
