"""Kernels whose workgroups are offered to helper threads, and what a helper runs.

IREE's workers sleep between calls, and a caller does nothing while they work. Where a call is short,
waking them is a large part of it (docs/performance.md). Here the caller's thread runs the dispatch
itself: it writes what the kernel was given on a board (`board.py`), opens the offer, and takes one
workgroup after the other, as do the helpers that see it. A helper is a thread that runs `attend` of the
same module: it looks at the board for a while, takes part in what is offered, and goes home.

A kernel of a module so becomes three functions: the kernel itself, which has its tensors as distances
from the board instead of bindings; `share`, which reads the board and takes workgroups until none is
left; and the one that IREE calls, which writes the board and closes the offer again. All are in one
executable with `attend`, which calls `share` of the kernel that is offered.

Memory order. `open`, `inside` and `next` change by `atomicrmw` alone, which is acq_rel. A helper counts
itself in before it looks whether the offer still stands; the caller closes the offer before it looks
whether somebody is in. Both looks at the count are read-modify-writes of one word, so one comes first:
if the helper's, the caller waits for it; if the caller's, the helper synchronises with it and sees that
the offer is closed. What the board says is written before the offer opens, and the caller leaves when
`inside` is 0, read with acquire: it sees all that helpers stored before they counted themselves out.
Nothing waits for a helper that has not come, and one that came ends: workgroups end whoever runs them
(`cpu/team.py`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from lstm_ir.backends.kernels.cpu.team import rest
from lstm_ir.backends.kernels.helpers import board
from lstm_ir.backends.kernels.text.text import Text

SYMBOL = "offered"  # of the executable
ATTEND = "attend"  # of what a helper runs
BOARD, TOTAL = "%b_board", "%offered"  # what a kernel takes besides: the board, its workgroups
TENSOR = f"tensor<{board.BYTES}xi8>"

_HEADER = re.compile(r"    func\.func @([\w.]+)\((.*)\)\n.*\{\n")
_ARGUMENT = re.compile(r"(%\w+): (!stream\.binding|index)")
_SUBSPAN = re.compile(r"stream\.binding\.subspan (%\w+)\[(%\w+)\] : !stream\.binding -> (memref<[^>]*>)(?:\{(.*)\})?")
_GROUP = "stream.dispatch.workgroup.id[0] : index"
_PRIVATE = 'attributes {no_inline, passthrough = ["noinline"]}'
_PUBLIC = (
    "attributes {translation_info = "
    "#iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>}"
)
_LOCK = "(i32, memref<1xi32>) -> i32"
_BYTES = "memref<?xi8>"
_ACQUIRE = "<{alignment = 4 : i64, ordering = 4 : i64}>"
_WORDS = f"memref<{2 + board.MOST}xi64>"


def fits(bindings: int, numbers: int) -> bool:
    """Whether the board has room for what a kernel takes."""
    return bindings + numbers <= board.MOST


def functions(kernels: Mapping[str, str], relax: str) -> str:
    """The functions of one executable for these kernels, by symbol: each has a function `symbol`_run."""
    parts = []
    for number, (symbol, text) in enumerate(kernels.items()):
        parts += _Kernel(symbol, text, number, relax).functions()
    return "\n".join([*parts, _attend(list(kernels), relax)])


def names(kernels: Mapping[str, str]) -> list[str]:
    """What the executable exports."""
    return [*(f"{symbol}_run" for symbol in kernels), f"{ATTEND}_run"]


def module_function() -> str:
    """The function of the module that a helper calls with the board."""
    return "\n".join([
        f'func.func @"{board.ATTEND}"(%board: {TENSOR}) -> tensor<1xi64> {{',
        "  %one = arith.constant 1 : index",
        f"  %looks = flow.dispatch @{SYMBOL}::@{ATTEND}_run[%one](%board)",
        f"      : ({TENSOR}) -> tensor<1xi64>",
        "  return %looks : tensor<1xi64>",
        "}",
    ])  # fmt: skip


class _Board:
    """The board as a function's lines see it."""

    def __init__(self, t: Text, base: str) -> None:
        self.t, self.base = t, base
        self.words = self._view(board.RECORD * board.LINE, _WORDS)

    def _view(self, at: int, kind: str) -> str:
        return self.t.op(f"memref.view {self.base}[{self.t.index(at)}][] : {_BYTES} to {kind}")

    def word(self, line: int) -> str:
        """The i32 at the head of a line."""
        return self._view(line * board.LINE, "memref<1xi32>")

    def cell(self, place: int) -> str:
        """Any i32."""
        return self._view(place * 4, "memref<1xi32>")

    def add(self, word: str, n: int) -> str:
        """Adds, and gives what was there."""
        t = self.t
        value = t.constant(str(n), "i32")
        return t.op(f"memref.atomic_rmw addi {value}, {word}[{t.index(0)}] : {_LOCK}")

    def seen(self, word: str) -> str:
        """The value now; memref has no load with acquire."""
        t = self.t
        at = t.op(f"memref.extract_aligned_pointer_as_index {word} : memref<1xi32> -> index")
        at = t.op(f"arith.index_cast {at} : index to i64")
        at = t.op(f"llvm.inttoptr {at} : i64 to !llvm.ptr")
        return t.op(f'"llvm.load"({at}) {_ACQUIRE} : (!llvm.ptr) -> i32')

    def put(self, place: int, v: str) -> None:
        """An index of the record."""
        t = self.t
        wide = t.op(f"arith.index_cast {v} : index to i64")
        t.line(f"memref.store {wide}, {self.words}[{t.index(place)}] : {_WORDS}")

    def get(self, place: int) -> str:
        """An index of the record."""
        t = self.t
        wide = t.op(f"memref.load {self.words}[{t.index(place)}] : {_WORDS}")
        return t.op(f"arith.index_cast {wide} : i64 to index")

    def is_open(self, n: str) -> str:
        """Whether an offer stands where `open` is n."""
        t = self.t
        one = t.constant("1", "i32")
        return t.op(f"arith.cmpi eq, {t.binary('andi', n, one, 'i32')}, {one} : i32")


def _bound(t: Text, name: str) -> str:
    """The bytes of the board, in a function that IREE calls."""
    size = t.index(board.BYTES)
    return t.op(
        f"stream.binding.subspan {name}[{t.index(0)}] : !stream.binding -> {_BYTES}{{{size}}}"
    )


def _written(t: Text, header: str) -> str:
    return "\n".join([f"    {header} {{", *t.head, *t.lines, "      return", "    }"])


class _Kernel:
    """One kernel as three functions."""

    def __init__(self, symbol: str, text: str, number: int, relax: str) -> None:
        found = _HEADER.search(text)
        assert found is not None
        self.symbol, self.number, self.relax = symbol, number, relax
        self.before, self.body = text[: found.start()], text[found.end() :]
        self.arguments = _ARGUMENT.findall(found[2])

    def functions(self) -> list[str]:
        """Those it calls first."""
        before = [self.before.rstrip("\n")] if self.before else []
        return [*before, self._work(), self._share(), self._run()]

    def _work(self) -> str:
        """The kernel, for one workgroup."""
        given = ", ".join(f"{name}: index" for name, _ in self.arguments)

        lines: list[str] = []
        for line in self.body.split("\n"):
            found = _SUBSPAN.search(line)
            if found is not None:
                source, at, kind, sizes = found.groups()
                place = f"%place{len(lines)}"
                lines.append(f"      {place} = arith.addi {source}, {at} : index")
                view = f"memref.view %board[{place}][{sizes or ''}] : {_BYTES} to {kind}"
                line = line[: found.start()] + view
            lines.append(line.replace(_GROUP, "arith.maxui %group, %group : index"))
        header = f"    func.func private @{self.symbol}_work(%board: {_BYTES}, {given}, %group: index)"
        return "\n".join([f"{header} {_PRIVATE} {{", *lines])

    def _share(self) -> str:
        """Takes workgroups of an offer until none is left."""
        t = Text(0)
        b = _Board(t, "%board")
        total = b.get(1)
        names = [b.get(2 + i) for i in range(len(self.arguments))]
        following = b.word(board.NEXT)
        all_, group = t.fresh(), t.fresh()
        with t.block(f"{all_} = scf.while () : () -> index", "} do {"):
            taken = t.op(f"arith.index_cast {b.add(following, 1)} : i32 to index")
            more = t.op(f"arith.cmpi ult, {taken}, {total} : index")
            t.line(f"scf.condition({more}) {taken} : index")
        t.line(f"^bb0({group}: index):")
        kinds = ", ".join([_BYTES, *["index"] * (len(names) + 1)])
        given = ", ".join(["%board", *names, group])
        t.line(f"  func.call @{self.symbol}_work({given}) : ({kinds}) -> ()")
        t.line("  scf.yield")
        t.line("}")
        return _written(
            t, f"func.func private @{self.symbol}_share(%board: {_BYTES}) {_PRIVATE}"
        )

    def _run(self) -> str:
        """Writes the offer, takes part in it, and waits for those who do."""
        t = Text(0)
        base = _bound(t, BOARD)
        b = _Board(t, base)
        pointer = f"memref.extract_aligned_pointer_as_index {{}} : {_BYTES} -> index"
        origin = t.op(pointer.format(base))
        b.put(0, t.index(self.number))
        b.put(1, TOTAL)
        for i, (name, kind) in enumerate(self.arguments):
            value = name
            if kind != "index":
                held = t.op(
                    f"stream.binding.subspan {name}[{t.index(0)}] : !stream.binding -> "
                    f"{_BYTES}{{{t.index(1)}}}"
                )
                value = t.binary("subi", t.op(pointer.format(held)), origin)
            b.put(2 + i, value)
        following = b.word(board.NEXT)
        t.line(f"memref.store {t.constant('0', 'i32')}, {following}[{t.index(0)}] : memref<1xi32>")
        opened, inside = b.word(board.OPEN), b.word(board.INSIDE)
        b.add(opened, 1)
        t.line(f"func.call @{self.symbol}_share({base}) : ({_BYTES}) -> ()")
        b.add(opened, 1)
        first, zero = b.add(inside, 0), t.index(0)
        at, turn, ended = t.fresh(), t.fresh(), t.fresh()
        pair = "(i32, index) -> (i32, index)"
        start = f"{ended}:2 = scf.while ({at} = {first}, {turn} = {zero}) : {pair}"
        with t.block(start, "} do {"):
            busy = t.op(f"arith.cmpi ne, {at}, {t.constant('0', 'i32')} : i32")
            t.line(f"scf.condition({busy}) {at}, {turn} : i32, index")
        at, turn = t.fresh(), t.fresh()
        t.line(f"^bb0({at}: i32, {turn}: index):")
        rest(t, self.relax, turn)
        t.line(f"scf.yield {b.seen(inside)}, {t.add(turn, 1)} : i32, index")
        t.line("}")
        given = [f"{name}: {kind}" for name, kind in self.arguments]
        at_outputs = next(
            (i for i, (name, _) in enumerate(self.arguments) if name.startswith("%b_out")),
            len(given),
        )
        given[at_outputs:at_outputs] = [f"{BOARD}: !stream.binding", f"{TOTAL}: index"]
        return _written(t, f"func.func @{self.symbol}_run({', '.join(given)})\n        {_PUBLIC}")


def _attend(symbols: list[str], relax: str) -> str:
    """What a helper runs: looks at the board, takes part in offers, ends when none comes."""
    t = Text(0)
    b = _Board(t, _bound(t, BOARD))
    opened, inside, leave = (b.word(n) for n in (board.OPEN, board.INSIDE, board.LEAVE))
    patience = b.seen(b.cell(board.PATIENCE))
    calls = b.cell(board.BUSY)
    zero, one = t.constant("0", "i32"), t.constant("1", "i32")
    looks, served, ended = t.fresh(), t.fresh(), t.fresh()
    pair = "(i32, i32) -> (i32, i32)"
    start = f"{ended}:2 = scf.while ({looks} = {zero}, {served} = {zero}) : {pair}"
    with t.block(start, "} do {"):
        some = t.op(f"arith.cmpi ult, {looks}, {patience} : i32")
        stay = t.op(f"arith.cmpi eq, {b.seen(leave)}, {zero} : i32")
        t.line(f"scf.condition({t.op(f'arith.andi {some}, {stay} : i1')}) {looks}, {served} : i32, i32")
    looks, served, out = t.fresh(), t.fresh(), t.fresh()
    t.line(f"^bb0({looks}: i32, {served}: i32):")
    now = b.seen(opened)
    new = t.op(f"arith.cmpi ne, {now}, {served} : i32")
    go = t.op(f"arith.andi {b.is_open(now)}, {new} : i1")
    with t.block(f"{out}:2 = scf.if {go} -> (i32, i32)", "} else {"):
        b.add(inside, 1)
        sure = b.add(opened, 0)
        with t.block(f"scf.if {b.is_open(sure)}"):
            which = b.get(0)
            t.line(f"scf.index_switch {which}")
            for i, symbol in enumerate(symbols):
                with t.block(f"case {i}"):
                    t.line(f"func.call @{symbol}_share({b.base}) : ({_BYTES}) -> ()")
                    t.line("scf.yield")
            with t.block("default"):
                t.line("scf.yield")
        b.add(inside, -1)
        t.line(f"scf.yield {zero}, {sure} : i32, i32")
    rest(t, relax, t.index(0))
    busy = t.op(f"arith.cmpi ne, {b.seen(calls)}, {zero} : i32")
    idle = t.constant(str(board.IDLE), "i32")
    more = t.op(f"arith.select {busy}, {one}, {idle} : i32")
    t.line(f"scf.yield {t.binary('addi', looks, more, 'i32')}, {served} : i32, i32")
    t.line("}")
    t.line(f"scf.yield {out}#0, {out}#1 : i32, i32")
    t.line("}")
    held = t.op(f"stream.binding.subspan %b_out[{t.index(0)}] : !stream.binding -> memref<1xi64>")
    wide = t.op(f"arith.extui {ended}#0 : i32 to i64")
    t.line(f"memref.store {wide}, {held}[{t.index(0)}] : memref<1xi64>")
    header = f"func.func @{ATTEND}_run({BOARD}: !stream.binding, %b_out: !stream.binding)"
    return _written(t, f"{header}\n        {_PUBLIC}")
