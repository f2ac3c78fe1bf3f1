"""Who runs a call on the CPU: the caller's thread, IREE's workers, or the caller with helpers.

Decided here, from numbers, when a call has sizes that the calls before it had not: they are known then. What was
asked for by name (`device=`) is not asked here.
"""

from __future__ import annotations

from typing import NamedTuple

# Operations of a call that one thread ends before workers are awake, some 50 us. Measured: 0.037 instead of 0.115 ms at
# (T,B,H) = (20,1,64); at 21 million two cores fetched the weights of a call after a rest sooner (docs/performance.md).
SMALL = 18_000_000
# Operations from which a call is worth a helper's part, and from which waking workers does not matter. Measured:
# helpers gain 1.15 to 2.55 times up to 17 million, 1.03 at 262 million.
HELPED, LARGE = 1_000_000, 300_000_000
# Loops and products of a call, beyond which helpers gain nothing: what is between them has one thread. Measured: the
# gradient of a layer, which has five, gained 0.96 to 0.98 times.
LOOPS = 4
HELPERS = 3  # of a call, at most; figure not kept


class Choice(NamedTuple):
    """Who runs a call, and why."""

    driver: str  # local-sync: the caller's thread; local-task: IREE's workers
    helpers: int  # threads that take part in what the caller's thread runs
    reason: str

    def __str__(self) -> str:
        helped = " with helpers" if self.helpers else ""
        return f"driver {self.driver}{helped}: {self.reason}"


def choose(operations: int | None, loops: int, published: int, threads: int, *, always: bool = False) -> Choice:
    """Who runs a call of so many operations in so many loops and products, in a process of `threads`.

    operations: None where sizes of state alone decide them. published: kernels of the function that helpers
    may take part in. always: they do, at any size.
    """
    if threads == 1:
        return Choice("local-sync", 0, "one thread")
    if always and published:
        return Choice("local-sync", helpers(threads), "helpers at any size")
    if operations is None:
        return Choice("local-task", 0, "its operations are not known")
    reason = f"{operations} operations in a call"
    # Beyond so many operations more workers than there are helpers end sooner.
    limit = LARGE if threads <= 1 + HELPERS else SMALL
    if published and loops <= LOOPS and HELPED <= operations < limit:
        return Choice("local-sync", helpers(threads), reason)
    if operations < SMALL:
        return Choice("local-sync", 0, f"{reason}, below {SMALL}")
    return Choice("local-task", 0, reason)


def may_help(operations: int | None, loops: int, publishable: int, *, always: bool = False) -> bool:
    """Whether some call, in some process, is run with helpers; operations: None where calls decide them."""
    return 0 < publishable and (always or (loops <= LOOPS and (operations is None or HELPED <= operations < LARGE)))


def helpers(threads: int) -> int:
    """Helpers of one call, in a process of so many threads."""
    return max(0, min(threads - 1, HELPERS))
