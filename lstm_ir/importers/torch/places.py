"""Where in the caller's code an op stands, as far as PyTorch tells: `, at model.py:14`."""

from __future__ import annotations

import traceback
from pathlib import Path
from typing import Any

import torch
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.overrides import TorchFunctionMode

_LIBRARIES = (str(Path(torch.__file__).parent), str(Path(__file__).parent))


def of_node(n: Any) -> str:
    """Where the module called the op of a node; empty where it is not known."""
    trace = str(n.meta.get("stack_trace") or "")
    files = [line.strip() for line in trace.splitlines() if line.strip().startswith('File "')]
    files = [f for f in files if not f.split('"')[1].startswith((*_LIBRARIES, "<"))]
    if not files:
        return ""
    parts = files[-1].split('"')
    number = parts[2].split(",")[1].strip().removeprefix("line ")
    return _at(parts[1], number)


def of_guard(guard: Any) -> str:
    """Where the module compared a size; empty where PyTorch did so by itself."""
    named = getattr(guard.sloc, "maybe_user_loc", None)
    if named is not None:
        file, _, number = str(named).strip("()").split(" in ")[0].rpartition(":")
        return _at(file, number)
    frame = getattr(guard.sloc, "framework_loc", None)
    file = getattr(frame, "filename", "<")
    return "" if file.startswith((*_LIBRARIES, "<")) else _at(file, getattr(frame, "lineno", ""))


def of_error(e: BaseException) -> str:
    """The innermost line outside of PyTorch that an error came through; empty where there is none."""
    for frame in reversed(traceback.extract_tb(e.__traceback__)):
        if not frame.filename.startswith((*_LIBRARIES, "<")):
            return _at(frame.filename, frame.lineno)
    return ""


def _at(file: str, number: object) -> str:
    return f", at {file.rsplit('/', 1)[-1]}:{number}"


class SizeWatch(TorchFunctionMode):  # type: ignore[misc]
    """Looks at each function that a module calls during an export: `place` is where a size became a number first.

    `loop` is the loop or branch that did so by itself: a state that keeps its shape, a body over two sizes.
    """

    def __init__(self) -> None:
        super().__init__()
        self.loop = ""
        self.place = ""
        self._env: Any = None
        self._before = 0

    def __enter__(self) -> SizeWatch:
        plain = self._plain = ShapeEnv._set_replacement

        def seen(env: Any, symbol: Any, becomes: Any, why: str) -> None:
            self._see(becomes)
            plain(env, symbol, becomes, why)

        ShapeEnv._set_replacement = seen
        return super().__enter__()  # type: ignore[no-any-return]  # torch has no types here

    def __exit__(self, *error: object) -> None:
        ShapeEnv._set_replacement = self._plain
        super().__exit__(*error)

    def _see(self, becomes: Any) -> None:
        """A symbol becomes another size."""
        files = [Path(s.filename) for s in traceback.extract_stack()]
        ops = [f.stem for f in files if f.parent.name == "_higher_order_ops" and f.stem != "utils"]
        if ops and getattr(becomes, "is_Integer", False) and not self.place:
            self.loop = ops[0]
            self.place = f", by {self.loop}{_caller()}"

    def __torch_function__(self, func: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if not self.place:
            self._env = self._env or _env(args)
            fixed = 0 if self._env is None else sum(bool(e.is_Integer) for e in self._env.replacements.values())
            if fixed > self._before:
                self.place = f", by {getattr(func, '__name__', func)}{_caller()}"
        return result


def _env(args: Any) -> Any:
    """PyTorch's record of symbols, of the first size among the arguments that is one."""
    for v in torch.utils._pytree.tree_leaves(args):
        for d in v.shape if isinstance(v, torch.Tensor) else ():
            if isinstance(d, torch.SymInt):
                return d.node.shape_env
    return None


def _caller() -> str:
    """The line outside of PyTorch that the call came from."""
    for frame in reversed(traceback.extract_stack()):
        if not frame.filename.startswith((*_LIBRARIES, "<")):
            return _at(frame.filename, frame.lineno)
    return ""
