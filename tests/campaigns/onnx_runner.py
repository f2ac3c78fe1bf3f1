"""What onnxruntime gives for a file, in a process of its own, which a damaged file may end."""

from __future__ import annotations

import contextlib
import pickle
import select
import struct
import subprocess
import sys
from functools import cache
from typing import Any

import numpy as np

from lstm_ir.importers.onnx.reference import BYTE_PRODUCTS, products_saturate

LIMIT = 5.0  # seconds of one file
_CHILD = """
import os, pickle, struct, sys
import onnxruntime
onnxruntime.set_default_logger_severity(4)
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
out = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
while True:
    (size,) = struct.unpack("<Q", sys.stdin.buffer.read(8))
    data, given = pickle.loads(sys.stdin.buffer.read(size))
    try:
        session = onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"])
        found = session.run(None, {i.name: given[i.name] for i in session.get_inputs()})
    except Exception:
        found = None
    text = pickle.dumps(found)
    out.write(struct.pack("<Q", len(text)) + text)
    out.flush()
"""


class Runner:
    """A process that runs files in onnxruntime; one that a file ends is replaced."""

    def __init__(self) -> None:
        self.child: subprocess.Popen[bytes] | None = None

    def run(self, data: bytes, given: dict[str, Any]) -> list[Any] | None:
        """The results; None where the file is refused, or ends the process, or takes too long."""
        if self.child is None:
            command = [sys.executable, "-c", _CHILD]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
            self.child = subprocess.Popen(command, **pipes)  # type: ignore[call-overload]
        assert self.child is not None
        assert self.child.stdin
        assert self.child.stdout
        text = pickle.dumps((data, given))
        try:
            self.child.stdin.write(struct.pack("<Q", len(text)) + text)
            self.child.stdin.flush()
            if not select.select([self.child.stdout], [], [], LIMIT)[0]:
                raise TimeoutError
            (size,) = struct.unpack("<Q", self.child.stdout.read(8))
            found: list[Any] | None = pickle.loads(self.child.stdout.read(size))
            return found
        except (OSError, TimeoutError, struct.error, EOFError):
            self.stop()
            return None

    def stop(self) -> None:
        if self.child is not None:
            with contextlib.suppress(OSError):
                self.child.kill()
            self.child.wait()
            self.child = None


@cache
def _runner() -> Runner:
    return Runner()


def by_onnxruntime(data: bytes, given: dict[str, Any]) -> list[Any] | None:
    """onnxruntime's results; None where there are none, and where they are known to be wrong.

    onnxruntime 1.32 leaves rows zero that the body of a Scan takes from its own inputs, and without VNNI its products
    of u8 and i8 saturate.
    """
    nodes = _nodes(data)
    if any(n.op_type in ("Scan", "Loop") and _rows_are_inputs(n) for n in nodes):
        return None
    if any(n.op_type in BYTE_PRODUCTS for n in nodes) and products_saturate():
        return None
    return _runner().run(data, given)


def _nodes(data: bytes) -> list[Any]:
    """Of the graph and of all bodies."""
    import onnx

    found, todo = [], [onnx.ModelProto.FromString(data).graph]
    while todo:
        nodes = todo.pop().node
        found += nodes
        todo += [body for n in nodes for body in _bodies(n)]
    return found


def _bodies(node: Any) -> list[Any]:
    return [a.g for a in node.attribute if a.HasField("g")]


def _rows_are_inputs(node: Any) -> bool:
    inputs = {v.name for b in _bodies(node) for v in b.input}
    return any(v.name in inputs for b in _bodies(node) for v in b.output)


def close(a: Any, w: Any, what: str) -> None:
    """Equal where both are numbers: of f32, sums in another order and a rounding apart.

    Not compared are results with numbers above a million: random data made them, and differences of such numbers.
    """
    if a.dtype.kind not in "fV":
        np.testing.assert_array_equal(a, w, err_msg=what)
        return
    a, w = a.astype("f8"), w.astype("f8")
    both = np.isfinite(a) & np.isfinite(w)
    largest = np.abs(w[both]).max(initial=1)
    if largest > 1e6:
        return
    np.testing.assert_allclose(a[both], w[both], rtol=1e-3, atol=1e-3 * largest, err_msg=what)
