"""The VM contexts of one loaded module, lent to calls.

A context holds what the module computed from its weights when it was loaded (packed, transposed,
added), and nothing that a call changes: state belongs to sessions. So any context serves any call, and
sessions need none of their own. A context serves one call at a time, and the bindings let other
threads run meanwhile: calls that overlap get one each, up to LIMIT, and then wait.

Helper threads run `serve` in the first context beside its calls: that function reads and writes nothing of the
context, only the queue that it is given.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from lstm_ir.backends import bindings
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.threads import affinity, policy, stacks

LIMIT = 4  # each further one computes and keeps the packed weights again
_POLL = 0.05  # seconds; a context may return between the look for one and the wait


class Contexts:
    """At least one context over `modules`; `name` is for errors.

    `schedule`: a caller's thread gets the policy and the processor that suit waiting for workers;
    `own`: it runs dispatches itself. `placement`: the process's by default.
    """

    def __init__(
        self, modules: Sequence[Any], name: str, *, schedule: bool = False, own: bool = False,
        placement: affinity.Placement | None = None,
    ) -> None:  # fmt: skip
        self._modules, self._name, self._own = list(modules), name, own
        self._schedule, self._placement = schedule, affinity.of_process if placement is None else placement
        self.first = self._make()
        self._free = [self.first]
        self._made = 1
        self._waiting = 0
        self._returned = threading.Condition()

    @property
    def made(self) -> int:
        """Contexts that exist."""
        return self._made

    def invoke(self, function: Any, arguments: Any, results: Any) -> None:
        """Call a VM function in a context that no other call uses."""
        if self._own:
            stacks.confirm()
        try:
            context = self._free.pop()  # atomic
        except IndexError:
            context = self._another()
        try:
            if not self._schedule:
                context.invoke(function, arguments, results)
            else:
                if len(self._free) == self._made - 1:  # callers that overlap do not crowd on one processor
                    self._placement.to_first_worker()
                policy.batch(context.invoke, function, arguments, results)
        finally:
            self._free.append(context)
            if self._waiting:
                with self._returned:
                    self._returned.notify()

    def _another(self) -> Any:
        with self._returned:
            while True:
                try:
                    return self._free.pop()
                except IndexError:
                    pass
                if self._made < LIMIT:
                    context = self._make()
                    self._made += 1
                    return context
                self._waiting += 1
                self._returned.wait(_POLL)
                self._waiting -= 1

    def _make(self) -> Any:
        if self._own:
            stacks.confirm()
        with runtime.reporting(f"loading {self._name}"):
            return bindings.native().VmContext(runtime.instance(), self._modules)
