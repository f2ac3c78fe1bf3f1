"""TensorFlow in a process of its own: runs raw ops and tapes over them, arrays in and out as npz.

    python tensorflow_child.py jobs.npz results.npz
    python tensorflow_child.py --definitions CudnnRNNV3 ...

TensorFlow and Mesa's Vulkan driver each bring an LLVM; a process that has imported TensorFlow
crashes in the driver's compiler. So no test may import it (conftest.py checks that).
A job: {"op": "BlockLSTM", "attrs": {..}, "tape": {"of": ["h"], "wrt": ["w"]}?}; its operands are
the arrays `JOB/NAME`, the cotangents of a tape `JOB/ct/NAME`, its results `JOB/NAME`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from tensorflow_environment import SETTINGS

Job = tuple[str, dict[str, Any], dict[str, Any]]  # op, attributes, operands (and "ct/NAME")


def definitions(names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """By op: `inputs`, `outputs` and `attrs`, {name: its default, as a list of one or none}."""
    return json.loads(_child("--definitions", *names))  # type: ignore[no-any-return]


def run(jobs: Sequence[Job]) -> list[dict[str, Any]]:
    """Results of every job. With cotangents `ct/NAME`, also the tape's gradients `d_NAME`."""
    arrays = {f"{n}/{k}": v for n, (_, _, a) in enumerate(jobs) for k, v in a.items()}
    listed = json.dumps([{"op": op, "attrs": attrs} for op, attrs, _ in jobs])
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "jobs.npz", Path(folder) / "results.npz"
        np.savez(given, jobs=np.frombuffer(listed.encode(), np.uint8), **arrays)
        _child(str(given), str(found))
        return _split(found, len(jobs))


def _child(*arguments: str) -> str:
    env = os.environ | SETTINGS
    command = [sys.executable, __file__, *arguments]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-4000:]
    return done.stdout


def _split(path: Path, count: int) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = [{} for _ in range(count)]
    with np.load(path) as z:
        for key in z.files:
            n, _, name = key.partition("/")
            if name:
                out[int(n)][name] = z[key]
    return out


def _one(tensorflow: Any, op: str, attrs: dict[str, Any], a: dict[str, Any]) -> dict[str, Any]:
    cts = {k[3:]: v for k, v in a.items() if k.startswith("ct/")}
    held = {k: tensorflow.constant(v) for k, v in a.items() if not k.startswith("ct/")}
    wrt = [v for v in held.values() if v.dtype.is_floating]
    with tensorflow.GradientTape() as tape:
        tape.watch(wrt)
        out = getattr(tensorflow.raw_ops, op)(**held, **attrs)._asdict()
        loss = sum(tensorflow.reduce_sum(out[k] * v) for k, v in cts.items())
    found = {k: v.numpy() for k, v in out.items()}
    if cts:
        names = [k for k, v in held.items() if v.dtype.is_floating]
        grads = tape.gradient(loss, wrt)
        found |= {f"d_{k}": v.numpy() for k, v in zip(names, grads, strict=True)}
    return found


def main(given: str, found: str) -> None:
    """Run the jobs of one file."""
    import tensorflow

    out: dict[str, Any] = {}
    operands = _operands(given)
    for n, (job, a) in enumerate(operands):
        results = _one(tensorflow, job["op"], job["attrs"], a)
        out |= {f"{n}/{k}": v for k, v in results.items()}
    np.savez(found, **out)


def _operands(path: str) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    with np.load(path) as z:
        jobs = json.loads(z["jobs"].tobytes())
        pairs: list[tuple[dict[str, Any], dict[str, Any]]] = [(job, {}) for job in jobs]
        for key in z.files:
            n, _, name = key.partition("/")
            if name:
                pairs[int(n)][1][name] = z[key]
    return pairs


def define(*names: str) -> None:
    """Print what TensorFlow's registry says of these ops."""
    from tensorflow.python.framework import op_def_registry
    from tensorflow.python.ops import gen_cudnn_rnn_ops  # noqa: F401  registers the ops

    out = {}
    for name in names:
        op = op_def_registry.get(name)
        attrs = {a.name: _default(a) for a in op.attr}
        inputs, outputs = ([v.name for v in part] for part in (op.input_arg, op.output_arg))
        out[name] = {"inputs": inputs, "outputs": outputs, "attrs": attrs}
    print(json.dumps(out))


def _default(attr: Any) -> list[Any]:
    if not attr.HasField("default_value"):
        return []
    kind = attr.default_value.WhichOneof("value")
    value = getattr(attr.default_value, kind)
    return [value.decode() if kind == "s" else value]


if __name__ == "__main__":
    if sys.argv[1] == "--definitions":
        define(*sys.argv[2:])
    else:
        main(*sys.argv[1:])
