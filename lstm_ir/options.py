"""Options of `compile`, `export` and `load`: their names, and what their values may be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lstm_ir.ir.called import Function, fitting
from lstm_ir.ir.errors import OptionError, TargetError
from lstm_ir.ir.near_names import hint, near

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
    """The options that are given, and the defaults; OptionError for what is none of `known`."""
    if options is not None and not isinstance(options, Mapping):
        raise OptionError(f"options is {options!r}; expected a mapping from names to values")
    given = dict({} if options is None else options)
    unknown = sorted(set(given) - set(known), key=str)
    if unknown:
        raise OptionError(f"unknown option {unknown[0]!r}{_instead(unknown[0], known)}")
    for name in ("kernels", "cache", "verify", "schedule_caller", "map_weights"):
        if not isinstance(given.get(name, True), bool):
            raise OptionError(f"option {name} is {given[name]!r}; expected True or False")
    helpers = given.get("helpers", True)
    if not isinstance(helpers, bool) and not (isinstance(helpers, str) and helpers == ALWAYS):
        raise OptionError(f"option helpers is {given['helpers']!r}; expected True, False or {ALWAYS!r}")
    if "thresholds" in given:
        thresholds(given)
    seconds = given.get("timeout", 300.0)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise OptionError(f"option timeout is {seconds!r}; expected seconds, a number above 0")
    for name in ("pipeline", "precision"):
        if not isinstance(given.get(name, ""), (str, type(None))):
            raise OptionError(f"option {name} is {given[name]!r}; expected text")
    return {k: v for k, v in defaults.items() if k in known} | given


def thresholds(numbers: Mapping[str, Any]) -> Thresholds:
    """Of option `thresholds`: whole numbers by name."""
    from dataclasses import fields

    from lstm_ir.backends.emit.options import Thresholds

    chosen, known = numbers.get("thresholds", {}), [f.name for f in fields(Thresholds)]
    if not isinstance(chosen, Mapping) or not all(isinstance(n, int) and n >= 0 for n in chosen.values()):
        raise OptionError(f"option thresholds is {chosen!r}; expected a mapping from names to numbers of 0 or more")
    for name in chosen:
        if name not in known:
            raise OptionError(
                f"option thresholds: there is no {name!r}{hint(name, known, f'; there are {_all(known)}')}"
            )
    return Thresholds(**chosen)


def _all(names: Sequence[str]) -> str:
    return ", ".join(names)


def _instead(name: object, known: Sequence[str]) -> str:
    if name in OPTIONS:
        return f": it is one of compile and export, and the package is compiled; here there are {_all(known)}"
    if name in LOAD_OPTIONS:
        return f": it is one of load; here there are {_all(known)}"
    return hint(name, known, f"; the options are {_all(known)}")


def told(known: Sequence[str]) -> Callable[[Function], Function]:
    """As `fitting`, for functions with the argument `options`: one of `known` as a keyword is told where it belongs."""

    def instead(_: str, keyword: str, parameters: Sequence[str]) -> str:
        meant = near(keyword, (*parameters, *known))
        if meant in known:
            return f"; options are handed over together: options={{{meant!r}: ...}}"
        return hint(keyword, parameters, f"; they are {_all(parameters)}")

    return fitting(instead)


def device_word(device: str | None) -> None:
    """TargetError for what is no device's word."""
    if device is not None and not (isinstance(device, str) and device):
        raise TargetError(f"device is {device!r}; expected a word like 'vulkan:1'")
