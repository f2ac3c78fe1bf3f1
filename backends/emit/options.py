"""How a program is lowered, beside what its target is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Sizes at which a kernel takes another of its forms; None: as measured (`machine.py` of the kernels).

    All forms give the same results up to rounding: experiments and tests set what a machine of theirs takes.
    """

    shared_step: int | None = None  # CPU: multiplications and additions of a step for each further worker
    merged_kernels: int | None = None  # CPU: kernels, different in numbers alone, that become one if they are so many
    published_arguments: int | None = None  # CPU: tensors and numbers of a kernel up to which helpers take part in it
    scratch_tensors: int | None = None  # CPU: tensors of a kernel above which its rows of scratch share one
    whole_loop: int | None = None  # GPU: bytes of weights of a step up to which one dispatch runs all steps
    chunk_steps: int | None = None  # GPU: steps above which a dispatch that would run all steps is several; even


@dataclass(frozen=True, slots=True)
class DispatchLimits:
    """What one dispatch takes in IREE 3.13.

    Each tensor has an offset and each size is a number, of two words. IREE leaves out those that are equal at
    all calls; a second entry that shares the kernel brings them back.
    """

    tensors: int = 32
    words: int = 64

    def hold(self, tensors: int, numbers: int) -> bool:
        """Whether a dispatch of so many tensors and sizes is possible."""
        return tensors <= self.tensors and words(tensors, numbers) <= self.words


def words(tensors: int, numbers: int) -> int:
    """Of a dispatch, at most."""
    return 2 * (tensors + numbers)


@dataclass(frozen=True, slots=True)
class Options:
    """Read by lowering rules and kernels; a target says what the hardware is."""

    kernels: bool = False  # loops and products may become kernels of this project
    helpers: bool = False  # the function takes what lets helper threads take part in its kernels
    apart: bool = False  # no op shares a dispatch with another: slower, but IREE's fusions fail on nothing
    thresholds: Thresholds = Thresholds()
    dispatch: DispatchLimits = DispatchLimits()


PLAIN = Options()
"""No kernels, no helpers: StableHLO alone."""
