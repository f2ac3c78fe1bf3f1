"""Programs that keep state, beside originals that keep none: the sides of a comparison of recordings.

Where the program found its state itself, the original runs the whole recording in one call, ours parts of it. Where
the model has its state as inputs and outputs, both run frame by frame, and the original's state is fed back.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.importers.original import Array, Original
from lstm_ir.ir import dims
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.signature import Entry, Port, StateVar
from lstm_ir.verification.bounds import bounds
from lstm_ir.verification.compare import Tolerance
from lstm_ir.verification.comparison import Comparison, ComparisonOptions, Ours
from lstm_ir.verification.result import Verification

if TYPE_CHECKING:
    from lstm_ir.backends.run.executable import Executable

CALLS = 4  # recordings that are compared
SEED = 0  # of their sizes and arrays, and of the parts
PARTS = 8  # sizes of a part that are drawn from, from 1 row to half of what a recording has
USUAL = Tolerance()


def verify_parts(
    exe: Executable, graph: Graph, original: Original, steps: str, limits: Tolerance = USUAL
) -> Verification:
    """Recordings that ours takes in parts of random sizes, and the original whole.

    graph: the entry `step`. steps: the name of the size that is time.
    """
    entry, rng = _stateless(exe), np.random.default_rng(SEED)

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Any]:
        total = entry.bound(tuple(arrays[p.name].shape for p in entry.inputs)).env[steps]
        parts, at = [], 0
        exe.entries["reset"]()
        while at < total:
            largest = min(total - at, max(1, total // 2))
            rows = int(rng.choice(np.geomspace(1, largest, PARTS).astype(int)))
            given = {p.name: _rows(arrays[p.name], p, steps, at, at + rows) for p in entry.inputs}
            parts.append(exe.entries["step"](given))
            at += rows
        return {p.name: _joined([part[p.name] for part in parts], p, steps) for p in entry.outputs}

    ours = Ours(f"{exe.signature.name} in parts", entry, run, bounds(graph), str(exe.device))
    return _compared(ours, original, limits)


def verify_frames(
    exe: Executable, graph: Graph, original: Original, feedback: Mapping[str, str], limits: Tolerance = USUAL
) -> Verification:
    """Recordings frame by frame on both sides, from a state of zeros; the states after every frame are compared too.

    graph: the entry `step`. feedback: the outputs of the original that become its inputs at the next frame.
    """
    step, state = _stateless(exe), exe.signature.state
    frames = "frames"
    while frames in step.dims:
        frames += "_"
    after = tuple(Port(output, state[taken].type) for taken, output in feedback.items())
    entry = step._replace(
        inputs=tuple(_stacked(p, frames) for p in step.inputs),
        outputs=tuple(_stacked(p, frames) for p in (*step.outputs, *after)),
        dims=(frames, *step.dims),
    )

    def run(arrays: Mapping[str, Array]) -> Mapping[str, Any]:
        found = []
        exe.entries["reset"]()
        for frame in _frames(arrays):
            out = exe.entries["step"](frame)
            kept = exe.entries["get_state"]()
            found.append({**out, **{output: kept[taken] for taken, output in feedback.items()}})
        return {p.name: np.stack([np.asarray(out[p.name]) for out in found]) for p in entry.outputs}

    ours = Ours(f"{exe.signature.name} frame by frame", entry, run, bounds(graph), str(exe.device))
    return _compared(ours, _FrameByFrame(original, entry, state, feedback), limits)


class _FrameByFrame:
    """The original over frames, its state fed back."""

    def __init__(
        self, original: Original, entry: Entry, state: Mapping[str, StateVar], feedback: Mapping[str, str]
    ) -> None:
        self.name, self.bytes = original.name, original.bytes
        self._original, self._entry, self._state, self._feedback = original, entry, state, feedback

    def __call__(self, arrays: Mapping[str, Array]) -> Mapping[str, Any]:
        """Results of all frames, one after another along the first axis."""
        sizes = self._entry.bound(tuple(arrays[p.name].shape for p in self._entry.inputs)).env
        kept: dict[str, Any] = {}
        for taken in self._feedback:
            kind = self._state[taken].type
            kept[taken] = np.zeros([dims.evaluate(d, sizes) for d in kind.shape], kind.dtype.numpy)
        found = []
        for frame in _frames(arrays):
            out = self._original({**frame, **kept})
            kept = {taken: out[output] for taken, output in self._feedback.items()}
            found.append(out)
        return {n: np.stack([np.asarray(out[n]) for out in found]) for n in found[0]}

    def cold(self, folder: Path, arrays: Path) -> str | None:
        """Not known."""
        return None


def _compared(ours: Ours, original: Original, limits: Tolerance) -> Verification:
    options = ComparisonOptions({}, {}, CALLS, SEED, limits, 0.0)
    return Comparison(ours, original, options).run(Path(), cold=False)


def _stateless(exe: Executable) -> Entry:
    """The entry `step` as a call of a recording sees it."""
    return exe.signature.entries["step"]._replace(reads=(), writes=())


def _stacked(p: Port, frames: str) -> Port:
    return Port(p.name, p.type.with_shape((dims.name(frames), *p.type.shape)))


def _frames(arrays: Mapping[str, Array]) -> list[dict[str, Array]]:
    """The arrays of each frame: rows of the first axis."""
    return [dict(zip(arrays, rows, strict=True)) for rows in zip(*arrays.values(), strict=True)]


def _axis(p: Port, steps: str) -> int | None:
    """The axis that is time."""
    return next((a for a, d in enumerate(p.type.shape) if steps in dims.names(d)), None)


def _rows(array: Array, p: Port, steps: str, low: int, high: int) -> Array:
    """The rows of an input that stand for these steps."""
    axis = _axis(p, steps)
    if axis is None:
        return array
    places = [dims.evaluate(p.type.shape[axis], {steps: n}) for n in (low, high)]
    return array[(slice(None),) * axis + (slice(*places),)]


def _joined(parts: list[Any], p: Port, steps: str) -> Any:
    """The rows of all parts; of an output without time that of the last."""
    axis = _axis(p, steps)
    return parts[-1] if axis is None else np.concatenate([np.asarray(a) for a in parts], axis)
