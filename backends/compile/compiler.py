"""iree-compile in a child process: no crash, hang or Ctrl-C of it reaches the caller."""

from __future__ import annotations

import errno
import os
import re
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import metadata, util
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from lstm_ir.backends import process
from lstm_ir.backends.compile import bindings
from lstm_ir.backends.compile import child as children
from lstm_ir.backends.compile.cache import Cache, key
from lstm_ir.backends.compile.compiler_errors import CompilerRefusedError, CompilerSlowError
from lstm_ir.backends.compile.phases import Checks, joined, prepared, readable
from lstm_ir.ir.errors import CompileError, OptionError
from lstm_ir.ir.foreign_errors import limit_in, refusals_become, strerror
from lstm_ir.ir.output_file import replacing
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.temporary import new_folder

_KEPT = 32 << 10  # bytes of messages kept, at either end
_NOTE = 8  # bytes that a note's length takes in an entry of the cache
# Bytes of arrays that a dispatch may have on the stack; small batched products of odd sizes take 40 KiB.
DISPATCH_STACK = 128 << 10
# Assertions guard memory (IREE reads and writes out of bounds without them), so they stay at O3.
BASE_FLAGS = (
    "--iree-input-type=stablehlo",
    "--iree-opt-strip-assertions=false",
    "--iree-input-demote-f64-to-f32=false",
    "--iree-vm-bytecode-module-strip-source-map=true",
    f"--iree-llvmcpu-stack-allocation-limit={DISPATCH_STACK}",
)
# A tensor of open size that a sum along its rows and a second op read becomes a buffer of open size
# on the stack of one dispatch ("exceeded stack allocation limit", 2^58 bytes), or ends in invalid
# code. Modules that compile either way are the same.
LESS_FUSION = "--iree-dispatch-creation-enable-aggressive-fusion=false"
_SOURCE, _RESULT = "module.mlir", "module.out"
PLACES = "--iree-stream-resource-"  # modules for CPUs say it themselves (`backends/emit/resources.py`)
_ENDED_BY: dict[int, str] = {  # signals that the system sends
    signal.SIGXFSZ: strerror(errno.EFBIG),
    signal.SIGXCPU: "its processor time is used up (ulimit -t)",
    signal.SIGKILL: "SIGKILL, which the system sends where memory runs out",
}
_AT = re.compile(r"^(?:\s*)([^\s:<>][^:<>\n]*):(\d+):(\d+): (error|note): (.*)$", re.MULTILINE)
_FAULT = re.compile(r"(?<=error: ).+|LLVM ERROR: .+|Assertion .+ failed.*", re.IGNORECASE)


class CompilerTarget(Protocol):
    """What the compiler is told of a target."""

    @property
    def info(self) -> TargetInfo:
        """What the hardware is."""

    @property
    def flags(self) -> tuple[str, ...]:
        """Flags of iree-compile."""


@dataclass(frozen=True)
class Way:
    """Flags of one try, and when IREE checks the module."""

    flags: tuple[str, ...]
    checks: Checks = Checks.PASSES


def _ways(flags: tuple[str, ...], options: Mapping[str, Any] | None, checks: Checks) -> list[Way]:
    """The flags, and weaker ones for modules that IREE 3.13 fails on, unless the caller chose.

    Its fusion of products and sums over several named sizes ends in invalid code, in endless buffers,
    or without a word. Fewer checks than after each pass are tried first, and the flags with all of them last, to tell
    why.
    """
    weaker: list[Way] = []
    if not options:
        level = flags.index("--iree-opt-level=O3")
        weaker = [
            Way(tuple(f.replace("data-tiling=true", "data-tiling=false") for f in flags)),
            Way(flags if LESS_FUSION in flags else (*flags, LESS_FUSION)),
            Way((*flags[:level], "--iree-opt-level=O1", "--iree-opt-data-tiling=false")),
        ]
    if checks is Checks.PASSES:
        return [Way(flags), *weaker]
    return [Way(flags, checks), *(w for w in weaker if w.flags != flags), Way(flags)]


def _first(ways: list[Way], compiled: Callable[[Way], bytes]) -> tuple[bytes, str]:
    """The module by the first way that gives one, and a note where that is none with the flags that were wanted.

    CompileError with what was said with the wanted flags, those of the first way, where none does.
    """
    refused: dict[Way, CompilerRefusedError] = {}
    wanted = ways[0].flags
    for way in ways:
        if way in refused:
            continue
        try:
            blob = compiled(way)
        except CompilerRefusedError as e:
            refused[way] = e
            continue
        changed = " ".join(f for f in way.flags if f not in wanted)
        why = next((e.reason for e in refused.values()), "")
        return blob, f"compiled with {changed}, because without it: {why}" if changed else ""
    raise refused[Way(wanted)]


def compile_mlir(
    text: str,
    target: CompilerTarget,
    *,
    name: str,
    timeout: float = 300,
    options: Mapping[str, Any] | None = None,
    use_cache: bool = True,
    notes: list[str] | None = None,
    checks: Checks = Checks.PASSES,
    functions: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """The module compiled for `target`, from the cache where it is.

    Options: `opt_level` ("O0" to "O3"), `data_tiling` (bool), `flags` (further compiler flags).
    `notes` gets a line where only weaker flags than these gave a module. `checks`: when the compiler checks its
    module; with flags of the caller, which may name phases, after each pass. `functions`: those that `text` declares
    alone, by name.
    """
    flags = (*BASE_FLAGS, *target.flags, *option_flags(options, target.info.kind))
    if options and "flags" in options and checks is Checks.PHASES:
        checks = Checks.PASSES
    ways = _ways(flags, options, checks)
    store = Cache() if use_cache else None
    # The ways, not the flags alone: what is asked of the compiler's checks and of weaker flags stands in them.
    for_whom = target.info.name, f"at most {target.info.bindings} bindings"
    entry = f"{key(text, *functions.values(), *for_whom, repr(ways), *versions())}.vmfb"
    kept = None if store is None else store.get(entry)
    if kept is not None:
        blob, note = _with_note(kept)
    else:

        def compiled(way: Way) -> bytes:
            return run(
                text, way.flags, name=name, target=target.info.name, timeout=timeout, most=target.info.bindings,
                checks=way.checks, functions=functions,
            )  # fmt: skip

        blob, note = _first(ways, compiled)
        if store is not None:
            said = note.encode()
            store.put(entry, len(said).to_bytes(_NOTE, "little") + said + blob)
    if note and notes is not None:
        notes.append(note)
    return blob


def _with_note(kept: bytes) -> tuple[bytes, str]:
    """A module and its note from one entry of the cache: neither is there without the other."""
    end = _NOTE + int.from_bytes(kept[:_NOTE], "little")
    return kept[end:], kept[_NOTE:end].decode()


def option_flags(options: Mapping[str, Any] | None, kind: str) -> list[str]:
    """Compiler flags of opt_level, data_tiling and flags; CompileError for what is none of them."""
    given = dict({} if options is None else options)
    level, tiling = given.pop("opt_level", "O3"), given.pop("data_tiling", kind == "cpu")
    extra = given.pop("flags", ())
    if given:
        raise OptionError(f"unknown option {min(given)!r}; the options are opt_level, data_tiling, flags")
    if not isinstance(level, str) or level not in ("O0", "O1", "O2", "O3"):
        raise OptionError(f"option opt_level is {level!r}; expected O0, O1, O2 or O3")
    if not isinstance(tiling, bool):
        raise OptionError(f"option data_tiling is {tiling!r}; expected True or False")
    if not isinstance(extra, (list, tuple)) or not all(isinstance(f, str) for f in extra):
        raise OptionError("option flags: expected a list of compiler flags")
    on = "true" if tiling else "false"
    chosen = {_flag_name(f) for f in extra}
    places = sorted(f for f in chosen if f.startswith(PLACES))
    if kind == "cpu" and places:
        raise OptionError(f"option flags: {places[0]} has no effect for CPUs: the module says where tensors lie")
    ours = [LESS_FUSION] if kind == "cpu" and _flag_name(LESS_FUSION) not in chosen else []
    return [*ours, f"--iree-opt-level={level}", f"--iree-opt-data-tiling={on}", *extra]


def _flag_name(flag: str) -> str:
    return flag.partition("=")[0]


@cache
def versions() -> tuple[str, str]:
    """Versions of the compiler and of this project, for cache keys and packages."""
    return _version("iree-base-compiler"), _version("lstm-ir")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "uninstalled"


@cache
def executable() -> str:
    """The path of iree-compile."""
    try:
        spec = util.find_spec("iree.compiler")
    except ModuleNotFoundError:
        spec = None
    for place in (spec.submodule_search_locations if spec is not None else None) or ():
        for folder in ("_mlir_libs", "tools"):
            found = Path(place) / folder / "iree-compile"
            if found.is_file():
                return str(found)
    raise CompileError("iree-compile is not installed: pip install iree-base-compiler")


def run(
    text: str, flags: Sequence[str], *, name: str, target: str, timeout: float, most: int | None = None,
    checks: Checks = Checks.PASSES, functions: Mapping[str, str] = MappingProxyType({}),
) -> bytes:  # fmt: skip
    """What iree-compile writes for the module `text` with these functions.

    most: tensors that the target's driver lets a dispatch have.
    """
    command = [executable(), _SOURCE, *flags, *([] if most is None else [bindings.FLAG]), "-o", _RESULT]
    with refusals_become(CompileError, f"{name}: the compiler cannot be run"), process.work(), new_folder() as work:
        code, messages = _phases(command, text, functions, checks, work, name, timeout)
        if most is not None:
            if code != 0 and _limit(code, messages) is None:
                # What FLAG writes takes the place of the user's lines in messages.
                return run(text, flags, name=name, target=target, timeout=timeout, checks=checks, functions=functions)
            if code == 0 and (have := bindings.most_bindings(work)) > most:
                said = f"a dispatch that IREE made has {have} tensors, and the driver takes {most}"
                raise CompilerRefusedError(f"{name}: the module would not load, target {target}", said)
        if code == 0:
            with suppress(FileNotFoundError):
                return (work / _RESULT).read_bytes()
        limit = _limit(code, messages)
        if limit is not None:
            raise CompileError(f"{name}: the compiler met a limit of this machine, target {target}: {limit}")
        raise _refusal(
            code, messages, f"{name}: the compiler {{}}, target {target}", _dump(joined(text, functions), name, command)
        )


def _phases(
    command: list[str], text: str, functions: Mapping[str, str], checks: Checks, work: Path, name: str, timeout: float
) -> tuple[int, str]:
    """Exit code and messages of the last of the runs, which is the first that fails or writes nothing.

    The last one gets the functions.
    """
    deadline = time.monotonic() + timeout
    source, result = work / _SOURCE, work / _RESULT
    for number, flags in enumerate(checks.runs):
        if number:
            if not result.exists():
                break
            text = readable(result.read_text(encoding="utf-8"))
            result.unlink()
        if number == len(checks.runs) - 1:
            text, more = prepared(text, functions)
            flags = (*flags, *more)
        source.write_text(text, encoding="utf-8")
        code, messages = _child([*command, *flags], str(work), name, timeout, deadline)
        if code != 0:
            break
    return code, messages


def _limit(code: int, messages: str) -> str | None:
    """The limit of the system that ended the compiler: no fault of the module or of IREE."""
    if -code in _ENDED_BY:
        return _ENDED_BY[-code]
    return limit_in(messages)


def _child(command: list[str], folder: str, name: str, timeout: float, deadline: float) -> tuple[int, str]:
    """Exit code and messages. The child has its own process group, and TMPDIR for its files."""
    child: subprocess.Popen[bytes] | None = None
    try:
        child = children.start(command, deadline - time.monotonic(), folder)
        messages = _read(child, deadline)
        if messages is None:
            raise CompilerSlowError(f"{name}: the compiler ran past its time limit of {timeout:g} s (option timeout)")
        return child.wait(), messages
    finally:
        if child is not None:
            children.stop(child)


def _read(child: subprocess.Popen[bytes], deadline: float) -> str | None:
    """The first and last messages of the child once it ended; None past the deadline."""
    assert child.stderr is not None
    handle = child.stderr.fileno()
    head, tail, lost = b"", b"", False
    while True:
        left = deadline - time.monotonic()
        if left <= 0:
            return None
        if not select.select([handle], [], [], left)[0]:
            continue
        data = os.read(handle, 1 << 16)
        if not data:
            break
        room = _KEPT - len(head)
        head += data[:room]
        tail += data[room:] if room > 0 else data
        lost = lost or len(tail) > _KEPT
        tail = tail[-_KEPT:]
    try:
        child.wait(max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return None
    gap = b"\n[...]\n" if lost else b""
    return (head + gap + tail).decode("utf-8", "replace")


def _refusal(code: int, messages: str, head: str, dump: str) -> CompilerRefusedError:
    """The error: what happened, the user's lines, then what the compiler said."""
    below = _shown(messages) + dump
    if code < 0 or "PLEASE submit a bug report" in messages:
        end = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return CompilerRefusedError(head.format(f"crashed ({end})"), _fault(messages), below=below)
    found = [(m[1], int(m[2]), m[5]) for m in _AT.finditer(messages) if m[4] == "error"]
    if not found and "error" not in messages.lower():
        return CompilerRefusedError(head.format(f"ended with exit status {code} and wrote no module"), below=below)
    users = dict.fromkeys((file, line) for file, line, _ in found if file != "module.mlir")
    said = found[0][2] if found else _fault(messages)
    return CompilerRefusedError(head.format("refused the module"), said, tuple(users), below)


def _fault(messages: str) -> str:
    """The first line that tells a fault without a place: an error, an assertion; empty where none does."""
    for line in messages.splitlines():
        m = _FAULT.search(line)
        if m is not None:
            return m[0].strip()[:300]
    return ""


def _shown(messages: str) -> str:
    """At most 40 lines of 300 characters, no stack: IREE prints whole modules."""
    lines = [line[:300] for line in messages.partition("Stack dump:")[0].strip().splitlines()]
    if len(lines) > 40:
        lines = [*lines[:25], f"[{len(lines) - 40} lines]", *lines[-15:]]
    return "\n".join(f"  | {line}" for line in lines)


def _dump(text: str, name: str, command: list[str]) -> str:
    """Keep a reproducer where LSTM_IR_DUMP names a folder."""
    folder = os.environ.get("LSTM_IR_DUMP")
    if not folder:
        return ""
    path = Path(folder) / (re.sub(r"[^A-Za-z0-9._-]", "_", name)[:80] + ".mlir")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as f:
            f.write(f"// {' '.join(command)}\n{text}".encode())
    except OSError as e:
        return f"\n  no reproducer in {folder}: {e.strerror}"
    return f"\n  reproducer: {path}"
