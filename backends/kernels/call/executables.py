"""The executables of a module's kernels, made when all its functions are written.

Calls of equal kernels share an executable, and so do those whose kernels have one form: they pass the
numbers in which these differ. Layers of unequal width are compiled once, not each.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

from iree.compiler import ir
from iree.compiler.passmanager import PassManager

from lstm_ir.backends.emit.options import Options
from lstm_ir.backends.kernels.call.dispatches import constant, dispatches, redirect
from lstm_ir.backends.kernels.helpers import publish
from lstm_ir.backends.kernels.text import form
from lstm_ir.backends.kernels.text.bound import bound, declared
from lstm_ir.backends.kernels.text.form import KernelForm
from lstm_ir.backends.kernels.text.kernel import Kernel, KernelSignature

_EXPORT = """  stream.executable.export public @{} workgroups(%n: index) -> (index, index, index) {{
    %c1 = arith.constant 1 : index
    stream.return %n, %c1, %c1 : index, index, index
  }}"""


def symbol_of(kernel: Kernel, word: str) -> str:
    """The name of the executable that holds the kernel."""
    # Functions of one module are linked: names must differ.
    return f"{word}_" + sha256(kernel.text("").encode()).hexdigest()[:12]


class Defined(NamedTuple):
    """What the executables came to."""

    published: Counter[str]  # kernels that each function publishes
    functions: dict[str, str]  # by name: the module declares these, and is without them until IREE translates kernels


def define(
    module: ir.Module, kernels: dict[str, Kernel], options: Options, cpu: bool, helped: Collection[str], relax: str
) -> Defined:
    """Puts the executables of `kernels`, by symbol, into the module; those for a CPU without private functions.

    `helped`: functions that publish their kernels to helpers (`helpers/publish.py`); `relax`: the processor's
    hint for a thread that waits.
    """
    kept = dict(kernels)
    calls: dict[str, tuple[str, list[int]]] = {}
    for symbols, forms in _alike(kernels, options.thresholds.merged_kernels) if cpu else ():
        kernel, columns = form.merged(forms)
        taken = kernel.entry.signature
        if not options.dispatch.hold(taken.tensors, len(taken.numbers)):
            continue
        one = symbol_of(kernel, symbols[0].partition("_")[0])
        for i, symbol in enumerate(symbols):
            del kept[symbol]
            calls[symbol] = one, [c[i] for c in columns]
        kept[one] = kernel
    if calls:
        for op, symbol in [d for f in module.body for d in dispatches(f.operation)]:
            if symbol in calls:
                one, numbers = calls[symbol]
                redirect(op, one, f"{one}_run", [constant(n, before=op) for n in numbers])
    defined = Defined(Counter(), {})
    _publish(module, kept, options, helped, relax, defined)
    for symbol, kernel in kept.items():
        name = f"{symbol}_run"
        text, functions = declared([(name, bound(kernel))]) if cpu else (kernel.text(name), {})
        defined.functions.update(functions)
        _define(module, symbol, [name], text)
    return defined


def _publish(
    module: ir.Module, kernels: dict[str, Kernel], options: Options, helped: Collection[str], relax: str,
    defined: Defined,
) -> None:  # fmt: skip
    """Kernels that these functions run are published to helpers; `kernels` keeps what runs otherwise."""
    shared = dict[str, Kernel]()
    served, plain = set[str](), set[str]()
    for op in list(module.body):
        function = op.operation
        for dispatch, symbol in list(dispatches(function)):
            kernel = kernels[symbol]
            if _name(function) in helped and _has_room(kernel.entry.signature, options):
                shared[publish.published_symbol(symbol)] = kernel
                served.add(symbol)
                defined.published[_name(function)] += 1
                *_, queue, _, publishes = function.regions[0].blocks[0].arguments
                _redirect(dispatch, publish.published_symbol(symbol), queue, publishes)
            else:
                plain.add(symbol)
    if shared:
        text, functions = declared(publish.kernels_of(shared, relax))
        defined.functions.update(functions)
        _define(module, publish.SYMBOL, publish.names(shared), text)
        ir.InsertionPoint(module.body).insert(ir.Operation.parse(publish.module_function()))
    for symbol in served - plain:
        del kernels[symbol]


def _name(op: ir.Operation) -> str:
    """Of a function; of nothing else."""
    return ir.StringAttr(op.attributes["sym_name"]).value if op.name == "func.func" else ""


def _redirect(dispatch: ir.Operation, symbol: str, queue: ir.Value, publishes: ir.Value) -> None:
    """The dispatch publishes its workgroups from a single one, where the call says so."""
    index, groups = ir.IndexType.get(), dispatch.operands[0]
    with ir.InsertionPoint(dispatch), dispatch.location:
        flag = ir.Operation.create("arith.index_cast", results=[index], operands=[publishes]).result
        zero = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 0)
        none = ir.Operation.create(
            "arith.cmpi", results=[ir.IntegerType.get_signless(1)], operands=[flag, constant(0, before=dispatch)],
            attributes={"predicate": zero},
        ).result  # fmt: skip
        chosen = [none, groups, constant(1, before=dispatch)]
        count = ir.Operation.create("arith.select", results=[index], operands=chosen).result
    redirect(dispatch, publish.SYMBOL, f"{symbol}_run", [queue, groups, flag], count)


def _has_room(taken: KernelSignature, options: Options) -> bool:
    """Whether a dispatch of such a kernel takes a queue besides."""
    tensors, numbers = taken.tensors, len(taken.numbers)
    published = publish.fits(tensors, numbers, options.thresholds.published_arguments)
    return published and options.dispatch.hold(tensors + 1, numbers + 2)


def _alike(kernels: dict[str, Kernel], min_count: int | None) -> Iterator[tuple[list[str], list[KernelForm]]]:
    """Kernels of one form, two or more, or so many."""
    lengths: dict[int, list[str]] = {}
    for symbol, kernel in kernels.items():
        lengths.setdefault(kernel.length, []).append(symbol)
    for symbols in lengths.values():
        if len(symbols) == 1:
            continue
        found: dict[Kernel, list[tuple[str, KernelForm]]] = {}
        for symbol in symbols:
            f = form.form(kernels[symbol])
            found.setdefault(f.kernel, []).append((symbol, f))
        for members in found.values():
            if len(members) >= (2 if min_count is None else max(min_count, 2)):
                yield [s for s, _ in members], [f for _, f in members]


def _define(module: ir.Module, symbol: str, exports: Sequence[str], functions: str) -> None:
    text = "\n".join([
        f"stream.executable private @{symbol} {{",
        *(_EXPORT.format(name) for name in exports),
        "  builtin.module {", functions, "  }", "}",
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
