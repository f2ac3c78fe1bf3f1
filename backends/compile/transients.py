"""Memory of a call's tensors that the device's allocator gives, not its queue.

IREE 3.13 orders memory of results, and of tensors between dispatches, in the device's queue. A CPU's queue takes up to
64 MiB from slabs that stay; more is memory of the system, given back at the end of the call, and the next call makes
all of its pages anew. And where two sessions are called at a time, results that Python frees are not found again: a
process grew by one result in each round. The device's allocator keeps what was freed (`backends/run/freed_memory.py`).
Measured, two threads, time by the queue by that by the allocator: training steps of mLSTM with 32 rows of 256 units 2.2
at 192 steps and 2.5 at 320, of two layers of LSTM with 64 rows and 200 steps 1.26 with 256 units and 1.14 with 512;
calls of less memory 0.98 to 1.05.

What a loop of the host allocates stays the queue's: it gives memory of one round to a later one, while the host is
rounds ahead.
"""

from __future__ import annotations

import re

_HOST = re.compile(r"^  util\.(?:func|initializer)\b.*\{.*\n(?:(?!  \}).*\n)*  \}", re.MULTILINE)
_LABEL = re.compile(r"^  (\^bb\d+)\b.*:.*$", re.MULTILINE)
_BRANCH = re.compile(r"^    cf\.\w+ .*$", re.MULTILINE)
_TO = re.compile(r"\^bb\d+")
_TYPE = r"(?P<type>!stream\.resource<(?:transient|external)>\{%[\w#]+\})"
_ALLOCA = re.compile(
    r"^(?P<indent> +)(?P<memory>%\w+), (?P<ready>%\w+) = stream\.resource\.alloca uninitialized (?P<on>on\(\S+\))"
    rf"(?: await\((?P<after>%[\w#]+)\) =>| :) {_TYPE} => !stream\.timepoint(?P<loc>.*)$",
    re.MULTILINE,
)
_DEALLOCA = re.compile(
    r"^(?P<indent> +)(?P<done>%\w+) = stream\.resource\.dealloca (?:origin )?(?:on\(\S+\) )?"
    rf"await\((?P<after>%[\w#]+)\) => (?P<memory>%\w+) : {_TYPE} => !stream\.timepoint(?P<loc>.*)$",
    re.MULTILINE,
)


def from_allocator(text: str) -> str:
    """The module, in which tensors of a call are from the allocator.

    `text`: a module for CPUs as IREE prints it before it translates executables.
    """
    return _HOST.sub(lambda found: _function(found[0]), text)


def _function(text: str) -> str:
    blocks = _blocks(text)
    loops = _in_loops({label: set(_targets(body)) for label, body in blocks})
    taken: set[str] = set()

    def allocated(m: re.Match[str]) -> str:
        taken.add(m["memory"])
        now, loc = "stream.timepoint.immediate", m["loc"]
        ready = now if m["after"] is None else f"stream.timepoint.join max({m['after']})"
        memory = f"stream.resource.alloc uninitialized {m['on']} : {m['type']}"
        return (
            f"{m['indent']}{m['memory']} = {memory}{loc}\n{m['indent']}{m['ready']} = {ready} => !stream.timepoint{loc}"
        )

    def freed(m: re.Match[str]) -> str:
        if m["memory"] not in taken:
            return m[0]
        return f"{m['indent']}{m['done']} = stream.timepoint.join max({m['after']}) => !stream.timepoint{m['loc']}"

    parts = [body if label in loops else _ALLOCA.sub(allocated, body) for label, body in blocks]
    return _DEALLOCA.sub(freed, "".join(parts))


def _blocks(text: str) -> list[tuple[str, str]]:
    """The text of a function in parts, each with the label of its block; the first block has none."""
    starts = [(m[1], m.start()) for m in _LABEL.finditer(text)]
    ends = [at for _, at in starts] + [len(text)]
    return [(label, text[at:end]) for (label, at), end in zip([("", 0), *starts], ends, strict=True)]


def _targets(body: str) -> list[str]:
    """The blocks that one branches to."""
    return [label for branch in _BRANCH.findall(body) for label in _TO.findall(branch)]


def _in_loops(targets: dict[str, set[str]]) -> set[str]:
    """The blocks that lead back to themselves."""
    found = set()
    for label, first in targets.items():
        seen, todo = set[str](), list(first)
        while todo:
            block = todo.pop()
            if block not in seen:
                seen.add(block)
                todo += targets.get(block, ())
        if label in seen:
            found.add(label)
    return found
