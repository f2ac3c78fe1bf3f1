"""Options of `compile`, `export` and `load`: their names, and what their values may be."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.errors import CompileError, LoweringError, TargetError

if TYPE_CHECKING:
    from lstm_ir.backends.emit.options import Thresholds

OPTIONS = (
    "pipeline", "precision", "kernels", "helpers", "opt_level", "data_tiling", "flags", "timeout", "cache",
    "verify", "schedule_caller", "thresholds",
)  # fmt: skip
ALWAYS = "always"  # of option helpers
# Of options that a call does not name, where they are not the documented ones: the tests' seam.
defaults: dict[str, Any] = {}
LOAD_OPTIONS = ("helpers", "schedule_caller", "map_weights")
# What a package records, to be compiled again alike. Flags are not among them: a file must not hand any to a compiler.
RECORDED = ("pipeline", "precision", "kernels", "helpers", "opt_level", "data_tiling", "thresholds")


def checked(options: Mapping[str, Any] | None, known: Sequence[str] = OPTIONS) -> dict[str, Any]:
    """The options that are given, and the defaults; CompileError or LoweringError for what is none of `known`."""
    if options is not None and not isinstance(options, Mapping):
        raise CompileError(f"options is {options!r}; expected a mapping from names to values")
    given = dict({} if options is None else options)
    unknown = sorted(set(given) - set(known))
    if unknown:
        raise LoweringError(f"unknown option {unknown[0]!r}; the options are {', '.join(known)}")
    for name in ("kernels", "cache", "verify", "schedule_caller", "map_weights"):
        if not isinstance(given.get(name, True), bool):
            raise CompileError(f"option {name} is {given[name]!r}; expected True or False")
    helpers = given.get("helpers", True)
    if not isinstance(helpers, bool) and not (isinstance(helpers, str) and helpers == ALWAYS):
        raise CompileError(f"option helpers is {given['helpers']!r}; expected True, False or {ALWAYS!r}")
    if "thresholds" in given:
        thresholds(given)
    seconds = given.get("timeout", 300.0)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise CompileError(f"option timeout is {seconds!r}; expected seconds, a number above 0")
    for name in ("pipeline", "precision"):
        if not isinstance(given.get(name, ""), (str, type(None))):
            raise CompileError(f"option {name} is {given[name]!r}; expected text")
    return {k: v for k, v in defaults.items() if k in known} | given


def thresholds(numbers: Mapping[str, Any]) -> Thresholds:
    """Of option `thresholds`: whole numbers by name."""
    from lstm_ir.backends.emit.options import Thresholds

    chosen, known = numbers.get("thresholds", {}), [f.name for f in fields(Thresholds)]
    if not isinstance(chosen, Mapping) or not all(isinstance(n, int) and n >= 0 for n in chosen.values()):
        raise CompileError(f"option thresholds is {chosen!r}; expected a mapping from names to numbers of 0 or more")
    for name in chosen:
        if name not in known:
            raise CompileError(f"option thresholds: {name!r} is none of {', '.join(known)}")
    return Thresholds(**chosen)


def device_word(device: str | None) -> None:
    """TargetError for what is no device's word."""
    if device is not None and not isinstance(device, str):
        raise TargetError(f"device is {device!r}; expected a word like 'vulkan:1'")
