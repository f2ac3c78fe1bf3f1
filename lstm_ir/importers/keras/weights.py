"""Where a layer's weights are: in a file of Keras 3, in a legacy .h5 file, or in a live model.

All three are trees of the objects that hold variables. `VARIABLES` says which a class has itself, and `PARTS`
which objects in it have more.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lstm_ir.importers.keras.config import MODELS, LayerSpec, layer_spec
from lstm_ir.importers.refusals import NodeRefusedError
from lstm_ir.ir.foreign_arrays import as_numpy

Array = np.ndarray[Any, Any]
Config = Mapping[str, Any]
Names = tuple[tuple[str, bool], ...]  # of variables, and whether Keras trains them
CELLS = {"LSTM": "LSTMCell", "GRU": "GRUCell", "SimpleRNN": "SimpleRNNCell"}
_KERNEL, _BIAS = ("kernel", True), ("bias", True)


def _biased(*names: str) -> Callable[[Config], Names]:
    return lambda c: (*((n, True) for n in names), *((_BIAS,) if c.get("use_bias", True) else ()))


def _scaled(c: Config) -> Names:
    return (
        *((("gamma", True),) if c.get("scale", True) else ()),
        *((("beta", True),) if c.get("center", True) else ()),
    )


VARIABLES: dict[str, Callable[[Config], Names]] = {
    **{k: _biased("kernel", "recurrent_kernel") for k in CELLS.values()},
    **{k: _biased("kernel") for k in ("Dense", "Conv1D", "Conv2D", "DepthwiseConv1D", "Conv1DTranspose",
                                      "DepthwiseConv2D", "Conv2DTranspose")},
    **{k: _biased("depthwise_kernel", "pointwise_kernel") for k in ("SeparableConv1D", "SeparableConv2D")},
    "Embedding": lambda c: (("embeddings", True),),
    "BatchNormalization": lambda c: (*_scaled(c), ("moving_mean", False), ("moving_variance", False)),
    "LayerNormalization": lambda c: (("gamma", True),) if c.get("rms_scaling") else _scaled(c),
    "GroupNormalization": _scaled,
    "RMSNormalization": lambda c: (("scale", True),),
    "Normalization": lambda c: (
        () if c.get("mean") is not None else (("mean", False), ("variance", False), ("count", False))
    ),
    "SpectralNormalization": lambda c: (("kernel", True), ("vector_u", False)),  # the kernel is its layer's
    "PReLU": lambda c: (("alpha", True),),
}  # fmt: skip


def variables(spec: LayerSpec) -> Names:
    """What a layer holds itself, in Keras' order; frozen layers train nothing."""
    function = VARIABLES.get(spec.kind)
    found: Names = () if function is None else function(spec.config)
    return found if spec.config.get("trainable", True) else tuple((n, False) for n, _ in found)


def cell_of(spec: LayerSpec) -> LayerSpec:
    """The cell of a recurrent layer: its own, or that of its config."""
    if spec.kind == "RNN":
        return layer_spec(spec.config.get("cell"))
    kind = CELLS[spec.kind]
    name = re.sub("([a-z])([A-Z])", r"\1_\2", kind.replace("RNN", "Rnn")).lower().replace("lstmcell", "lstm_cell")
    return LayerSpec(kind, name.replace("grucell", "gru_cell"), spec.config, True, spec.module)


def cells_of(spec: LayerSpec) -> list[LayerSpec]:
    """The cells of a stack."""
    given = spec.config.get("cells")
    if not isinstance(given, list) or not given:
        raise NodeRefusedError("StackedRNNCells has no list of cells")
    return [layer_spec(e) for e in given]


def parts(spec: LayerSpec) -> Iterator[tuple[str, LayerSpec | list[LayerSpec]]]:
    """The objects in a layer that hold variables, by attribute, in Keras' order."""
    if spec.kind in CELLS or spec.kind == "RNN":
        yield "cell", cell_of(spec)
    elif spec.kind == "StackedRNNCells":
        yield "cells", cells_of(spec)
    elif spec.kind == "Bidirectional":
        yield from zip(("forward_layer", "backward_layer"), both_of(spec), strict=True)
    elif spec.kind in ("TimeDistributed", "SpectralNormalization"):
        yield "layer", layer_spec(spec.config.get("layer"))
    elif spec.kind in MODELS:
        given = spec.config.get("layers")
        yield "layers", [layer_spec(e) for e in given] if isinstance(given, list) else []


def both_of(spec: LayerSpec) -> tuple[LayerSpec, LayerSpec]:
    """The two layers of a Bidirectional, with the names that it gives them."""
    there = layer_spec(spec.config.get("layer"))
    back = spec.config.get("backward_layer")
    bare = there.name.removeprefix("forward_")
    forward = LayerSpec(there.kind, f"forward_{bare}", there.config, there.own, there.module)
    if back is not None:
        return forward, layer_spec(back)
    config = {**there.config, "go_backwards": not there.config.get("go_backwards", False)}
    name = f"backward_{bare.removeprefix('backward_')}"
    return forward, LayerSpec(there.kind, name, config, there.own, there.module)


class Weights(ABC):
    """The variables of one object, and the objects in it. `identity`: of a live object, what no other has."""

    identity: int | None = None

    @abstractmethod
    def own(self, names: Names) -> dict[str, Array]:
        """Arrays by name; RefusedError where there are not so many."""

    @abstractmethod
    def child(self, attribute: str) -> Weights:
        """The object of an attribute."""

    @abstractmethod
    def children(self, attribute: str, specs: Sequence[LayerSpec]) -> list[Weights]:
        """The objects of a list."""


def _named(names: Names, arrays: Sequence[Array], where: str) -> dict[str, Array]:
    if len(arrays) != len(names):
        wanted = ", ".join(n for n, _ in names) or "none"
        raise NodeRefusedError(f"{len(arrays)} variables are stored{where}, its config says {wanted}")
    return {n: a for (n, _), a in zip(names, arrays, strict=True)}


class FileWeights(Weights):
    """Arrays of a Keras 3 file by path: `layers/lstm/cell/vars/0`."""

    def __init__(self, arrays: Mapping[str, Array], path: str = "") -> None:
        self._arrays, self._path = arrays, path

    def own(self, names: Names) -> dict[str, Array]:
        """Those under `vars/`, by number."""
        prefix = f"{self._path}/vars/".lstrip("/")
        found: list[Array] = []
        while f"{prefix}{len(found)}" in self._arrays:
            found.append(self._arrays[f"{prefix}{len(found)}"])
        return _named(names, found, f" at {prefix[:-1]}")

    def child(self, attribute: str) -> Weights:
        """One folder deeper."""
        return FileWeights(self._arrays, f"{self._path}/{attribute}".lstrip("/"))

    def children(self, attribute: str, specs: Sequence[LayerSpec]) -> list[Weights]:
        """Folders by class, numbered where a class stands twice."""
        counts: dict[str, int] = {}
        out = []
        for s in specs:
            name = snake_case(s.kind)
            counts[name] = counts.get(name, -1) + 1
            out.append(self.child(f"{attribute}/{name}" + (f"_{counts[name]}" if counts[name] else "")))
        return out


def snake_case(name: str) -> str:
    """A class name as Keras writes it in paths."""
    name = re.sub(r"\W+", "", name)
    name = re.sub("(.)([A-Z][a-z]+)", r"\1_\2", name)
    return re.sub("([a-z])([A-Z])", r"\1_\2", name).lower()


class LiveWeights(Weights):
    """Variables of live objects."""

    def __init__(self, keras_object: Any) -> None:
        self.keras_object, self.identity = keras_object, id(keras_object)

    def variables(self, names: Names) -> dict[str, Any]:
        """The variables themselves."""
        store: dict[str, Any] = {}
        self.keras_object.save_own_variables(store)
        return _named(names, [store[str(k)] for k in range(len(store))], "")

    def own(self, names: Names) -> dict[str, Array]:
        """Their values."""
        return {n: value_of(v) for n, v in self.variables(names).items()}

    def child(self, attribute: str) -> Weights:
        """The attribute."""
        return LiveWeights(getattr(self.keras_object, attribute))

    def children(self, attribute: str, specs: Sequence[LayerSpec]) -> list[Weights]:
        """The list; of a model the layers by name, as a Sequential leaves its input out."""
        things = list(getattr(self.keras_object, attribute))
        by_name = {getattr(t, "name", None): t for t in things}
        if attribute == "layers":
            return [LiveWeights(by_name.get(s.name)) for s in specs]
        return [LiveWeights(t) for t in things]


def value_of(variable: Any) -> Array:
    """The array of a variable of any backend."""
    value = getattr(variable, "value", variable)
    try:
        found = as_numpy(value, lambda got: NodeRefusedError(f"a variable is {got}"))  # type: ignore[arg-type,return-value]
    except NodeRefusedError:
        found = variable.numpy()  # on a device: the backend copies it
    return np.array(found)


class LegacyWeights(Weights):
    """The arrays of one layer of a legacy file, which stand in one row: trained ones first."""

    def __init__(self, own: Sequence[Array], inner: Mapping[str, Any]) -> None:
        self._own, self._inner = own, inner

    @classmethod
    def of(cls, spec: LayerSpec, arrays: Sequence[Array]) -> LegacyWeights:
        """Each array put where it belongs; RefusedError where there are not as many."""
        order = list(_flat(spec, (), spec.config.get("trainable", True)))
        ranked = sorted(range(len(order)), key=lambda k: (not order[k][1], k))
        if len(arrays) != len(order):
            raise NodeRefusedError(f"the file has {len(arrays)} weights for it, its config says {len(order)}")
        placed: dict[tuple[Any, ...], list[tuple[int, Array]]] = {}
        for array, k in zip(arrays, ranked, strict=True):
            placed.setdefault(order[k][0], []).append((k, array))
        return cls._tree(spec, (), {p: [a for _, a in sorted(v, key=lambda t: t[0])] for p, v in placed.items()})

    @classmethod
    def _tree(
        cls, spec: LayerSpec, path: tuple[Any, ...], placed: Mapping[tuple[Any, ...], list[Array]]
    ) -> LegacyWeights:
        inner: dict[str, Any] = {}
        for attribute, found in parts(spec):
            if isinstance(found, list):
                inner[attribute] = [cls._tree(s, (*path, attribute, k), placed) for k, s in enumerate(found)]
            else:
                inner[attribute] = cls._tree(found, (*path, attribute), placed)
        return cls(placed.get(path, []), inner)

    def own(self, names: Names) -> dict[str, Array]:
        """Its own arrays."""
        return _named(names, self._own, "")

    def child(self, attribute: str) -> Weights:
        """The object of an attribute."""
        found: Weights = self._inner[attribute]
        return found

    def children(self, attribute: str, specs: Sequence[LayerSpec]) -> list[Weights]:
        """The objects of a list."""
        found: list[Weights] = self._inner[attribute]
        return found


def _flat(spec: LayerSpec, path: tuple[Any, ...], trained: bool) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """The place of each variable, and whether it is trained, in the order in which Keras walks over them."""
    trained = trained and spec.config.get("trainable", True)
    for name, trainable in variables(spec):
        if (spec.kind, name) != ("SpectralNormalization", "kernel"):  # it stands once, with its layer
            yield path, trainable and trained
    for attribute, found in parts(spec):
        if isinstance(found, list):
            for k, s in enumerate(found):
                yield from _flat(s, (*path, attribute, k), trained)
        else:
            yield from _flat(found, (*path, attribute), trained)
