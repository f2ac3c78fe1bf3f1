"""What variables are called here, and under which key a checkpoint has their values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from functools import cached_property

from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.importers.tensorflow.bundle import ATTRIBUTE
from lstm_ir.importers.tensorflow.reading import Source
from lstm_ir.importers.tensorflow.variable import VARIABLES, Variable, declared

_UNNAMED = "Variable"  # what TensorFlow calls a variable without a name


class VariableNames:
    """Names of a model's variables, which do not hang on the signature that is asked for.

    A variable has its own name, the path of its key where two have one name, and its key where that does not help.
    """

    def __init__(self, source: Source) -> None:
        self._source = source
        pairs = [] if source.bundle is None else source.bundle.objects()
        keys = Counter(name for name, _ in set(pairs))
        self._by_name = {name: key for name, key in pairs if keys[name] == 1}
        self._by_key = {key: name for name, key in pairs if not name.startswith(_UNNAMED) and name.isprintable()}

    def key(self, v: Variable) -> str:
        """The key of a variable in the checkpoint. RefusedError where it has none."""
        bundle = self._source.bundle
        if bundle is None:
            return v.name
        own = self._source.keys.get(v.node)
        key = next((k for k in (own, v.name, self._by_name.get(v.name)) if k in bundle), None)
        if key is None:
            raise NodeRefusedError(f"the checkpoint {bundle.file} has no value for the variable {v.name!r}")
        return key

    def name(self, key: str) -> str:
        """What the variable of a key is called."""
        return self._names.get(key, key)

    @cached_property
    def keys(self) -> dict[str, str]:
        """By name the key of each variable that results are computed from."""
        return {name: key for key, name in self._names.items()}

    @cached_property
    def _names(self) -> dict[str, str]:
        graph = self._source.graph
        ends = {r.node for s in self._source.signatures.values() for r in s.outputs.values()}
        behind = graph.behind(ends or graph.nodes)
        keys = dict[str, None]()
        for node in graph.nodes.values():
            if node.op in VARIABLES and node.name in behind:
                try:
                    keys[self.key(declared(node))] = None
                except NodeRefusedError:  # said where the variable is read
                    continue
        paths = _told_apart(keys, lambda k: k.removesuffix(ATTRIBUTE), lambda k: k)
        return _told_apart(keys, lambda k: self._by_key.get(k, paths[k]), lambda k: paths[k])


def _told_apart(keys: Iterable[str], name: Callable[[str], str], other: Callable[[str], str]) -> dict[str, str]:
    """By key its name; of keys with one name the other."""
    names = {k: name(k) for k in keys}
    count = Counter(names.values())
    return {k: n if count[n] == 1 else other(k) for k, n in names.items()}
