"""The executables of a module's kernels, made when all its functions are written.

Calls whose kernels have one text share an executable, and so do those whose texts have one form: they
pass the numbers in which these differ. Layers of unequal width are compiled once, not each.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from lstm_ir.backends.kernels import form
from lstm_ir.backends.kernels.form import Form

NAME = "kernel_of_the_loop"  # of a function until its text is known
# Numbers of one dispatch. Each tensor has an offset and each size is one, as two words. IREE leaves
# out those that are equal at all calls; a second entry that shares the kernel brings them back.
WORDS = 64


def symbol_of(function: str, word: str) -> str:
    """The name of the executable that holds `function`, whose name is NAME there."""
    # Functions of one module are linked: names must differ.
    return f"{word}_" + sha256(function.encode()).hexdigest()[:12]


def words(bindings: int, numbers: int) -> int:
    """Of a dispatch, at most."""
    return 2 * (bindings + numbers)


def define(module: ir.Module, kernels: dict[str, str], share: bool) -> None:
    """Puts the executables of `kernels`, functions by symbol, into the module."""
    kept = dict(kernels)
    calls: dict[str, tuple[str, list[int]]] = {}
    for symbols, forms in _alike(kernels) if share else ():
        text, columns = form.merged(forms)
        header = text[text.rindex("func.func @") :].partition("\n")[0]
        if words(header.count("!stream.binding"), header.count(": index")) > WORDS:
            continue
        one = symbol_of(text, symbols[0].partition("_")[0])
        for i, symbol in enumerate(symbols):
            del kept[symbol]
            calls[symbol] = one, [c[i] for c in columns]
        kept[one] = text
    if calls:
        for op in list(module.body):
            _redirect(op.operation, calls)
    for symbol, text in kept.items():
        _define(module, symbol, text.replace(NAME, f"{symbol}_run"))


def _alike(kernels: dict[str, str]) -> Iterator[tuple[list[str], list[Form]]]:
    """Kernels of one form, two or more."""
    lengths: dict[int, list[str]] = {}
    for symbol, text in kernels.items():
        lengths.setdefault(form.length(text), []).append(symbol)
    for symbols in lengths.values():
        if len(symbols) == 1:
            continue
        found: dict[tuple[str, ...], list[tuple[str, Form]]] = {}
        for symbol in symbols:
            f = form.form(kernels[symbol])
            found.setdefault(f.lines, []).append((symbol, f))
        for members in found.values():
            if len(members) > 1:
                yield [s for s, _ in members], [f for _, f in members]


def _redirect(op: ir.Operation, calls: dict[str, tuple[str, list[int]]]) -> None:
    """Dispatches inside `op` of a kernel that is shared call the shared one, with its numbers."""
    for region in op.regions:
        for block in region:
            for inner in list(block):
                if inner.operation.name != "flow.dispatch":
                    _redirect(inner.operation, calls)
                    continue
                symbol = str(inner.attributes["entry_points"][0]).partition("::")[0].strip('@"')
                if symbol in calls:
                    _replace(inner.operation, *calls[symbol])


def _replace(op: ir.Operation, symbol: str, numbers: list[int]) -> None:
    index = ir.IndexType.get()
    with ir.InsertionPoint(op), op.location:
        more = [
            ir.Operation.create(
                "arith.constant", results=[index],
                attributes={"value": ir.IntegerAttr.get(index, n)},
            ).result
            for n in numbers
        ]  # fmt: skip
        attrs = {name: op.attributes[name] for name in op.attributes}
        total, arguments, *dims = ir.DenseI32ArrayAttr(attrs["operandSegmentSizes"])
        given = list(op.operands)
        at = total + arguments
        attrs["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get(
            [total, arguments + len(more), *dims]
        )
        attrs["entry_points"] = ir.ArrayAttr.get([ir.Attribute.parse(f"@{symbol}::@{symbol}_run")])
        new = ir.Operation.create(
            op.name, results=[r.type for r in op.results],
            operands=[*given[:at], *more, *given[at:]], attributes=attrs,
        )  # fmt: skip
    for old, v in zip(op.results, new.results, strict=True):
        old.replace_all_uses_with(v)
    op.erase()


def _define(module: ir.Module, symbol: str, function: str) -> None:
    text = "\n".join([
        f"stream.executable private @{symbol} {{",
        f"  stream.executable.export public @{symbol}_run workgroups(%n: index)",
        "      -> (index, index, index) {",
        "    %c1 = arith.constant 1 : index",
        "    stream.return %n, %c1, %c1 : index, index, index",
        "  }", "  builtin.module {", function, "  }", "}",
    ])  # fmt: skip
    try:
        op = ir.Operation.parse(text, source_name=symbol)
    except ir.MLIRError:
        _dump(symbol, text)
        raise
    # Places in this text tell nobody anything, and are half of what a module's text would be.
    PassManager.parse("any(strip-debuginfo)").run(op.operation)
    ir.InsertionPoint.at_block_begin(module.body).insert(op)


def _dump(symbol: str, text: str) -> None:
    """Keep the text of a kernel that MLIR refused where LSTM_IR_DUMP names a folder."""
    folder = os.environ.get("LSTM_IR_DUMP")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        (Path(folder) / f"{symbol}.mlir").write_text(text, encoding="utf-8")
