"""Kernels whose workgroups are published to helper threads, and what a helper runs.

IREE's workers sleep between calls, and a caller does nothing while they work. Where a call is short,
waking them is a large part of it (docs/performance.md). Here the caller's thread runs the dispatch
itself: it publishes what the kernel was given in the queue (`queue.py`), and takes one workgroup after the
other, as do the helpers that see the entry. A helper is a thread that runs `serve` of the same module: it
polls the queue for a while, takes workgroups of what is published, and leaves.

A kernel of a module so becomes these functions: the kernel itself, which has its tensors as distances
from the queue instead of bindings; `take_groups`, which takes workgroups until none is left; and the one that
IREE calls, which publishes the entry and withdraws it again. All are in one executable with `serve`, which
takes groups of the kernel that is published, with what the entry says.

The call says whether it publishes. Where it does not, IREE's workers, or the caller alone, run the
workgroups as those of any dispatch, by the same code. (IREE 3.13 takes a function that is called in two places
of one executable's function for recursive: each is called in one.)

Memory order. PUBLISHED, SERVING and NEXT_GROUP change by `atomicrmw` alone, which is acq_rel. A helper counts
itself in before it looks whether the entry still stands; the caller withdraws the entry before it polls
whether somebody serves. Both looks at the count are read-modify-writes of one word, so one comes first:
if the helper's, the caller waits for it; if the caller's, the helper synchronises with it and sees that
the entry is withdrawn. The entry is written before it is published, and the caller leaves when
SERVING is 0, read with acquire: it sees all that helpers stored before they counted themselves out.
Nothing waits for a helper that has not come, and one that came ends: workgroups end whoever runs them
(`cpu/team.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from lstm_ir.backends import queue
from lstm_ir.backends.kernels.text.kernel import BINDING, Kernel, KernelFunction, KernelSignature, called_by_iree
from lstm_ir.backends.kernels.text.memory import acquired, address
from lstm_ir.backends.kernels.text.spin import spin_pause
from lstm_ir.backends.kernels.text.statements import (
    CallStatement,
    Kind,
    MemRef,
    Name,
    Rewriter,
    Statement,
    Subspan,
    TextOperand,
    WorkgroupId,
    argument,
    operation,
)
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.backends.memory import LINE

SYMBOL = "published"  # of the executable
SERVE = "serve"  # of what a helper runs
# What a kernel takes besides: the queue, its workgroups, whether it publishes them.
QUEUE, TOTAL, PUBLISHES = Name("%b_queue", BINDING), argument("published"), argument("publishes")
TENSOR = f"tensor<{queue.BYTES}xi8>"
# What a function takes besides: the queue, how many share the work, whether its kernels publish theirs.
CALL_ARGUMENTS = (TENSOR, "i32", "i32")

_BYTES, _WORD = MemRef((None,), "i8"), MemRef((1,), "i32")
_WORDS = MemRef((2 + queue.MOST_ARGUMENTS,), "i64")
_BASE, _GROUP = Name("%queue", _BYTES), argument("group")  # of private functions


def published_symbol(kernel: str) -> str:
    """The name of a kernel that publishes its work: another function of the module may run it as a plain dispatch."""
    return f"{SYMBOL}_{kernel}"


def fits(bindings: int, numbers: int, max_arguments: int | None) -> bool:
    """Whether the queue has room for what a kernel takes, and that is no more than `max_arguments`."""
    room = queue.MOST_ARGUMENTS
    return bindings + numbers <= (room if max_arguments is None else min(room, max_arguments))


def kernels_of(kernels: Mapping[str, Kernel], relax: str) -> list[tuple[str, Kernel]]:
    """The kernels of one executable for these, by symbol, and what their names begin with: each has a function
    `symbol`_run."""
    parts = [(s, _Published(k, i, relax).kernel()) for i, (s, k) in enumerate(kernels.items())]
    return [*parts, ("", Kernel((_serve(list(kernels), relax),)))]


def names(kernels: Iterable[str]) -> list[str]:
    """What the executable exports."""
    return [*(f"{symbol}_run" for symbol in kernels), f"{SERVE}_run"]


def module_function() -> str:
    """The function of the module that a helper calls with the queue."""
    return "\n".join([
        f'func.func @"{queue.SERVE}"(%queue: {TENSOR}) -> tensor<1xi64> {{',
        "  %one = arith.constant 1 : index",
        f"  %polls = flow.dispatch @{SYMBOL}::@{SERVE}_run[%one](%queue)",
        f"      : ({TENSOR}) -> tensor<1xi64>",
        "  return %polls : tensor<1xi64>",
        "}",
    ])  # fmt: skip


class _Queue:
    """The queue as a function's statements see it."""

    def __init__(self, t: Text, base: Name) -> None:
        self.t, self.base = t, base
        self.words = self._view(queue.ENTRY * LINE, _WORDS)

    def _view(self, at: int, kind: MemRef) -> Name:
        return self.t.op("memref.view {}[{}][] : {} to {}", self.base, self.t.index(at), _BYTES, kind)

    def word(self, line: int) -> Name:
        """The i32 at the head of a line."""
        return self._view(line * LINE, _WORD)

    def cell(self, place: int) -> Name:
        """Any i32."""
        return self._view(place * 4, _WORD)

    def add(self, word: Name, n: int) -> Name:
        """Adds, and gives what was there."""
        t = self.t
        value = t.constant(str(n), "i32")
        change = "memref.atomic_rmw addi {}, {}[{}] : (i32, {}) -> i32"
        return t.op(change, value, word, t.index(0), _WORD)

    def seen(self, word: Name) -> Name:
        """The value now; memref has no load with acquire."""
        t = self.t
        at = t.op("arith.index_cast {} : index to i64", address(t, word, _WORD))
        return acquired(t, t.op("llvm.inttoptr {} : i64 to !llvm.ptr", at))

    def put(self, place: int, v: TextOperand) -> None:
        """An index of the entry."""
        t = self.t
        wide = t.op("arith.index_cast {} : index to i64", v)
        t.line("memref.store {}, {}[{}] : {}", wide, self.words, t.index(place), _WORDS)

    def get(self, place: int) -> Name:
        """An index of the entry."""
        t = self.t
        wide = t.op("memref.load {}[{}] : {}", self.words, t.index(place), _WORDS)
        return t.op("arith.index_cast {} : i64 to index", wide)

    def stands(self, n: TextOperand) -> Name:
        """Whether an entry stands where PUBLISHED is n."""
        t = self.t
        one = t.constant("1", "i32")
        return t.compare("eq", t.binary("andi", n, one, "i32"), one, "i32")


def _bound(t: Text, binding: Name) -> Name:
    """The bytes of the queue, in a function that IREE calls."""
    size, zero = t.index(queue.BYTES), t.index(0)
    return _subspan(t, binding, zero, _BYTES, [size])


def _subspan(t: Text, binding: Name, zero: TextOperand, kind: MemRef, sizes: Sequence[TextOperand] = ()) -> Name:
    out = t.fresh()
    t.put(Subspan(out, binding, zero, kind, tuple(sizes)))
    return out


class _Published:
    """One kernel as three functions, and those that it calls."""

    def __init__(self, kernel: Kernel, number: int, relax: str) -> None:
        *self.before, self.entry = kernel.functions
        self.number, self.relax = number, relax
        self.taken = self.entry.signature

    def kernel(self) -> Kernel:
        """Those that others call first."""
        return Kernel((*self.before, self._work(), self._take_groups(), self._help(), self._run()))

    def _work(self) -> KernelFunction:
        """The kernel, for one workgroup."""
        given = tuple(replace(p, kind="index") for p in self.taken.all)
        signature = KernelSignature((), (_BASE, *given, _GROUP), ())
        body = _OnQueue().body(self.entry.body)
        return replace(self.entry, name="_work", signature=signature, body=body, attributes="")

    def _take_groups(self) -> KernelFunction:
        """Runs workgroup `group`, or takes those of the entry that stands until none is left."""
        t = Text(0)
        given = tuple(replace(p, kind="index") for p in self.taken.all)
        following = _Queue(t, _BASE).word(queue.NEXT_GROUP)
        published = t.compare("ne", PUBLISHES, t.index(0))
        turn, zero = t.fresh(), t.index(0)
        with t.block("scf.while ({} = {}) : (index) -> (index, index)", turn, zero, to=t.fresh(), results=2):
            taken = t.fresh()
            with t.block("scf.if {} -> (index)", published, to=taken):
                next_group = t.op("memref.atomic_rmw addi {}, {}[{}] : (i32, {}) -> i32", t.constant("1", "i32"),
                                  following, zero, _WORD)  # fmt: skip
                t.line("scf.yield {} : index", t.op("arith.index_cast {} : i32 to index", next_group))
            with t.region("else"):
                t.line("scf.yield {} : index", _GROUP)
            left = t.compare("ult", taken, TOTAL)
            more = t.select(published, left, t.compare("eq", turn, zero), "i1")
            t.line("scf.condition({}) {}, {} : index, index", more, taken, turn)
        group, turn = t.fresh("index"), t.fresh("index")
        with t.region("do", group, turn):
            t.put(CallStatement("_work", (_BASE, *given, group), self._kinds(1)))
            t.line("scf.yield {} : index", t.add(turn, 1))
        return t.function("_take_groups", KernelSignature((), (_BASE, *given, _GROUP, TOTAL, PUBLISHES), ()))

    def _kinds(self, more: int) -> tuple[Kind, ...]:
        """Of what a private function takes: the queue, what the kernel does, and so many indices more."""
        return (_BYTES, *["index"] * (len(self.taken.all) + more))

    def _help(self) -> KernelFunction:
        """What a helper does about this kernel's entry."""
        t = Text(0)
        q = _Queue(t, _BASE)
        given = [q.get(2 + i) for i in range(len(self.taken.all))]
        t.call(CallStatement("_take_groups", (_BASE, *given, t.index(0), q.get(1), t.index(1)), self._kinds(3)))
        return t.function("_help", KernelSignature((), (_BASE,), ()))

    def _run(self) -> KernelFunction:
        """One workgroup; or the entry published, all workgroups with those who help, the entry withdrawn."""
        t = Text(0)
        base = _bound(t, QUEUE)
        origin = address(t, base, _BYTES)
        taken = [self._distance(t, p, origin) if p.kind == BINDING else p for p in self.taken.all]
        group, q = t.workgroup(), _Queue(t, base)
        published = t.compare("ne", PUBLISHES, t.index(0))
        with t.when(published):
            self._publish(t, q, taken)
        t.put(CallStatement("_take_groups", (base, *taken, group, TOTAL, PUBLISHES), self._kinds(3)))
        with t.when(published):
            self._withdraw(t, q)
        more = (*self.taken.numbers, QUEUE, TOTAL, PUBLISHES)  # last among what a dispatch passes
        return t.function("_run", self.taken._replace(numbers=more), called_by_iree())

    def _publish(self, t: Text, q: _Queue, taken: Sequence[TextOperand]) -> None:
        """The entry stands."""
        q.put(0, t.index(self.number))
        q.put(1, TOTAL)
        for i, v in enumerate(taken):
            q.put(2 + i, v)
        following = q.word(queue.NEXT_GROUP)
        t.line("memref.store {}, {}[{}] : {}", t.constant("0", "i32"), following, t.index(0), _WORD)
        q.add(q.word(queue.PUBLISHED), 1)

    def _withdraw(self, t: Text, q: _Queue) -> None:
        """It stands no more, and who served it is waited for."""
        serving = q.word(queue.SERVING)
        q.add(q.word(queue.PUBLISHED), 1)
        first, zero = q.add(serving, 0), t.index(0)
        at, turn, ended = t.fresh(), t.fresh(), t.fresh()
        start = "scf.while ({} = {}, {} = {}) : (i32, index) -> (i32, index)"
        with t.block(start, at, first, turn, zero, to=ended, results=2):
            busy = t.compare("ne", at, t.constant("0", "i32"), "i32")
            t.line("scf.condition({}) {}, {} : i32, index", busy, at, turn)
        at, turn = t.fresh("i32"), t.fresh("index")
        with t.region("do", at, turn):
            spin_pause(t, self.relax, turn)
            t.line("scf.yield {}, {} : i32, index", q.seen(serving), t.add(turn, 1))

    def _distance(self, t: Text, binding: Name, origin: TextOperand) -> Name:
        """From the queue to a tensor."""
        held = _subspan(t, binding, t.index(0), _BYTES, [t.index(1)])
        return t.binary("subi", address(t, held, _BYTES), origin)


class _OnQueue(Rewriter):
    """Tensors at their distance from the queue; a workgroup that is given."""

    def __init__(self) -> None:
        self._places = 0

    def statement(self, s: Subspan | WorkgroupId | CallStatement) -> Iterable[Statement]:
        """Views instead of bindings."""
        if isinstance(s, WorkgroupId):
            yield operation("arith.maxui {}, {} : index", _GROUP, _GROUP, to=s.result)
        elif isinstance(s, Subspan):
            self._places += 1
            place = Name(f"%place{self._places}", "index")
            yield operation("arith.addi {}, {} : index", s.binding, s.offset, to=place)
            view = "memref.view {}[{}][{}] : {} to {}"
            yield operation(view, _BASE, place, s.sizes, _BYTES, s.kind, to=s.result)
        else:
            yield from super().statement(s)


def _serve(symbols: list[str], relax: str) -> KernelFunction:
    """What a helper runs: polls the queue, takes part in what is published, ends when nothing is."""
    t = Text(0)
    q = _Queue(t, _bound(t, QUEUE))
    published, serving, closed = (q.word(n) for n in (queue.PUBLISHED, queue.SERVING, queue.CLOSED))
    limit = q.seen(q.cell(queue.POLLS))
    calls = q.cell(queue.CALL)
    zero, one = t.constant("0", "i32"), t.constant("1", "i32")
    polls, served, ended = t.fresh(), t.fresh(), t.fresh()
    start = "scf.while ({} = {}, {} = {}) : (i32, i32) -> (i32, i32)"
    with t.block(start, polls, zero, served, zero, to=ended, results=2):
        some = t.compare("ult", polls, limit, "i32")
        stay = t.compare("eq", q.seen(closed), zero, "i32")
        go = t.binary("andi", some, stay, "i1")
        t.line("scf.condition({}) {}, {} : i32, i32", go, polls, served)
    polls, served = t.fresh("i32"), t.fresh("i32")
    with t.region("do", polls, served):
        now = q.seen(published)
        new = t.compare("ne", now, served, "i32")
        go = t.binary("andi", q.stands(now), new, "i1")
        out = t.fresh()
        with t.block("scf.if {} -> (i32, i32)", go, to=out, results=2):
            q.add(serving, 1)
            sure = q.add(published, 0)
            with t.when(q.stands(sure)):
                t.line("scf.index_switch {}", q.get(0))
                for i, symbol in enumerate(symbols):
                    with t.region(f"case {i}"):
                        t.put(CallStatement(f"{symbol}_help", (q.base,), (_BYTES,)))
                        t.line("scf.yield")
                with t.region("default"):
                    t.line("scf.yield")
            q.add(serving, -1)
            t.line("scf.yield {}, {} : i32, i32", zero, sure)
        with t.region("else"):
            spin_pause(t, relax, t.index(0))
            busy = t.compare("ne", q.seen(calls), zero, "i32")
            idle = t.constant(str(queue.IDLE_POLL), "i32")
            more = t.select(busy, one, idle, "i32")
            t.line("scf.yield {}, {} : i32, i32", t.binary("addi", polls, more, "i32"), served)
        t.line("scf.yield {} : i32, i32", t.results(out, ["i32", "i32"]))
    result, count = Name("%b_out", BINDING), MemRef((1,), "i64")
    held = _subspan(t, result, t.index(0), count)
    wide = t.op("arith.extui {} : i32 to i64", t.results(ended, ["i32", "i32"])[0])
    t.line("memref.store {}, {}[{}] : {}", wide, held, t.index(0), count)
    return t.function(f"{SERVE}_run", KernelSignature((QUEUE,), (), (result,)), called_by_iree())
