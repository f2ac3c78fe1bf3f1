"""What a Keras model's config says: layers, how they are called, and which tensors go where.

A config is the JSON that Keras writes into `.keras` and `.h5` files, and that it gives of a live model. Two forms of
calls are read: Keras 3's (`args`, `kwargs`), and that of Keras 1 and 2 (lists of layer, node and tensor).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from lstm_ir.importers.refusals import NodeRefusedError

Tree = Any  # a Ref or a Python value, or lists, tuples and dicts of trees
FUNCTIONAL = ("Functional", "Model")
MODELS = (*FUNCTIONAL, "Sequential")
MAX_NAME = 1000  # signs
DEPTH = 32  # models in models, structures in structures
RECURRENT = ("LSTM", "GRU", "SimpleRNN", "RNN", "Bidirectional", "CuDNNLSTM", "CuDNNGRU")


@dataclass(frozen=True)
class Ref:
    """One tensor: result `tensor` of call `node` of a layer."""

    layer: str
    node: int
    tensor: int


@dataclass(frozen=True)
class Inbound:
    """One call of a layer. `old`: as Keras 1 and 2 write it."""

    args: tuple[Tree, ...]
    kwargs: Mapping[str, Tree]
    old: bool = False


@dataclass(frozen=True)
class LayerSpec:
    """One layer: its class, its config and its calls. `own`: of Keras itself, not registered by somebody."""

    kind: str
    name: str
    config: Mapping[str, Any]
    own: bool
    module: str
    calls: tuple[Inbound, ...] = ()
    build: Mapping[str, Any] = field(default_factory=dict)
    is_operation: bool = False  # a function of `keras.ops`, not a layer

    @property
    def path(self) -> str:
        """The class with its module, where it has one."""
        return f"{self.module}.{self.kind}" if self.module else self.kind


@dataclass(frozen=True)
class ModelSpec:
    """A Functional or Sequential model."""

    name: str
    layers: tuple[LayerSpec, ...]
    inputs: Tree
    outputs: Tree

    @property
    def by_name(self) -> dict[str, LayerSpec]:
        """The layers by name."""
        return {s.name: s for s in self.layers}


def refs(tree: Tree) -> Iterator[Ref]:
    """The tensors of a tree, in Keras' order: dicts by sorted keys."""
    if isinstance(tree, Ref):
        yield tree
    elif isinstance(tree, Mapping):
        for key in sorted(tree):
            yield from refs(tree[key])
    elif isinstance(tree, (list, tuple)):
        for t in tree:
            yield from refs(t)


def mapped(tree: Tree, function: Any) -> Tree:
    """The tree with a function's result for each tensor."""
    if isinstance(tree, Ref):
        return function(tree)
    if isinstance(tree, Mapping):
        return {k: mapped(v, function) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(mapped(t, function) for t in tree)
    return tree


def layer_spec(entry: Any, depth: int = 0) -> LayerSpec:
    """The layer of a config; RefusedError for what is no layer."""
    if depth > DEPTH:
        raise NodeRefusedError(f"layers are nested deeper than {DEPTH}")
    if not isinstance(entry, Mapping) or not isinstance(entry.get("class_name"), str):
        raise NodeRefusedError(f"{entry!r:.60} is no layer of a config")
    config = entry.get("config")
    config = {"layers": config} if isinstance(config, list) else config  # Sequential of Keras 1
    if not isinstance(config, Mapping):
        raise NodeRefusedError(f"the layer {entry['class_name']} has no config")
    module = str(entry.get("module") or "keras.layers")
    registered = entry.get("registered_name")
    own = module.split(".")[0] in ("keras", "tf_keras", "tensorflow") and (
        registered is None or str(registered) == entry["class_name"]
    )
    if "module" in entry and entry["module"] is None:  # so Keras writes a class of somebody's own
        own, module = False, ""
    name = str(config.get("name") or entry.get("name") or entry["class_name"].lower())
    if not name.isprintable() or len(name) > MAX_NAME:
        raise NodeRefusedError(f"{name!r:.60} is no name of a layer")
    nodes = entry.get("inbound_nodes") or []
    if not isinstance(nodes, list):
        raise NodeRefusedError(f"the calls of {entry['class_name']} are {nodes!r:.60}")
    calls = tuple(_inbound(n, entry["class_name"]) for n in nodes)
    build = entry.get("build_config")
    # In legacy files Keras 3 writes no module; what has neither `trainable` nor a seed there is no layer.
    plain = "trainable" not in config and "seed" not in config
    bare = "module" not in entry and plain and any(isinstance(n, Mapping) for n in nodes)
    return LayerSpec(
        entry["class_name"], name, config, own, module, calls, build if isinstance(build, Mapping) else {},
        ".ops" in module or bare,
    )  # fmt: skip


def model_spec(spec: LayerSpec) -> ModelSpec:
    """The model whose config a layer has."""
    if spec.kind not in MODELS:
        raise NodeRefusedError(f"the model is of the class {spec.kind}, not Functional or Sequential")
    given = spec.config.get("layers")
    if not isinstance(given, list) or not given:
        raise NodeRefusedError("its config has no list of layers")
    layers = [layer_spec(e) for e in given]
    names = [s.name for s in layers]
    if len(set(names)) < len(names):
        raise NodeRefusedError(f"two layers are called {max(names, key=names.count)!r}")
    if spec.kind == "Sequential":
        return _sequential(spec, layers)
    kinds = {s.name: s.kind for s in layers}
    ends = [_ends(spec.config.get(word)) for word in ("input_layers", "output_layers")]
    old = any(c.old for s in layers for c in s.calls)
    inputs, outputs = (_from_zero(tree, kinds, MODELS if old else FUNCTIONAL) for tree in ends)
    return ModelSpec(spec.name, tuple(_numbered(s, kinds) for s in layers), inputs, outputs)


def _numbered(spec: LayerSpec, kinds: Mapping[str, str]) -> LayerSpec:
    """The layer, whose calls number the calls of others from 0."""
    calls = []
    for c in spec.calls:
        args, kwargs = (_from_zero(t, kinds, MODELS if c.old else ()) for t in (c.args, dict(c.kwargs)))
        calls.append(Inbound(args, kwargs, c.old))
    return replace(spec, calls=tuple(calls))


def _from_zero(tree: Tree, kinds: Mapping[str, str], having: Sequence[str]) -> Tree:
    """Tensors of models have a call 0 of their own, of their inputs: everywhere in Keras 2, as outputs in Keras 3."""
    return mapped(tree, lambda r: Ref(r.layer, r.node - (kinds.get(r.layer) in having), r.tensor))


def _sequential(spec: LayerSpec, layers: list[LayerSpec]) -> ModelSpec:
    """The layers one after the other; the input is a layer, or the shape that a config has."""
    if layers[0].kind != "InputLayer":
        shape = spec.config.get("build_input_shape") or spec.build.get("input_shape")
        shape = shape or layers[0].config.get("batch_input_shape") or layers[0].config.get("batch_shape")
        if not isinstance(shape, list):
            raise NodeRefusedError("the Sequential model has no input shape: it was not built")
        dtype = layers[0].config.get("dtype") if "batch_input_shape" in layers[0].config else "float32"
        called = f"{layers[0].name}_input"
        config = {"batch_shape": shape, "dtype": dtype or "float32", "name": called}
        layers = [LayerSpec("InputLayer", called, config, True, "keras.layers"), *layers]
    first = Ref(layers[0].name, 0, 0)
    before, chained = first, [layers[0]]
    for s in layers[1:]:
        call = Inbound((before,), {})
        chained.append(LayerSpec(s.kind, s.name, s.config, s.own, s.module, (call,), s.build))
        before = Ref(s.name, 0, 0)
    return ModelSpec(spec.name, tuple(chained), first, before)


def _ends(tree: Any) -> Tree:
    """The inputs or outputs of a model: [name, node, tensor], or lists or a dict of such."""
    if _is_place(tree):
        return Ref(tree[0], tree[1], tree[2])
    if isinstance(tree, Mapping):
        return {str(k): _ends(v) for k, v in tree.items()}
    if isinstance(tree, list):
        return [_ends(v) for v in tree]
    raise NodeRefusedError(f"{tree!r:.60} names no inputs or outputs of a model")


def _is_place(v: Any) -> bool:
    return (
        isinstance(v, (list, tuple)) and len(v) in (3, 4) and isinstance(v[0], str) and
        all(isinstance(i, int) and not isinstance(i, bool) for i in v[1:3])
    )  # fmt: skip


def _inbound(node: Any, kind: str) -> Inbound:
    if isinstance(node, Mapping):
        args, kwargs = node.get("args", []), node.get("kwargs", {})
        if not isinstance(args, (list, tuple)) or not isinstance(kwargs, Mapping):
            raise NodeRefusedError("a call has no args and kwargs")
        return Inbound(tuple(_value(a, 0) for a in args), {str(k): _value(v, 0) for k, v in kwargs.items()})
    if not isinstance(node, list) or not node or not all(map(_is_place, node if not _is_place(node) else [node])):
        raise NodeRefusedError(f"{node!r:.60} is no call of a layer")
    places = [node] if _is_place(node) else node
    tensors = [Ref(p[0], p[1], p[2]) for p in places]
    given = places[0][3] if len(places[0]) == 4 and isinstance(places[0][3], Mapping) else {}
    kwargs = {str(k): Ref(*v[:3]) if _is_place(v) else _value(v, 0) for k, v in given.items()}
    if kind in RECURRENT and len(tensors) > 1:  # Keras 2 hands the states over as further inputs
        return Inbound((tensors[0],), {**kwargs, "initial_state": tensors[1:]}, True)
    return Inbound((tensors[0] if len(tensors) == 1 else tensors,), kwargs, True)


def _value(v: Any, depth: int) -> Tree:
    """A value of a call: tensors, slices, arrays and structures of them, as Keras writes them."""
    if depth > DEPTH:
        raise NodeRefusedError(f"arguments are nested deeper than {DEPTH}")
    if isinstance(v, Mapping):
        kind, config = v.get("class_name"), v.get("config")
        if kind == "__keras_tensor__" and isinstance(config, Mapping) and _is_place(config.get("keras_history")):
            return Ref(*config["keras_history"][:3])
        if kind in ("__numpy__", "__tensor__") and isinstance(config, Mapping):
            return np.asarray(config.get("value"), dtype=str(config.get("dtype", "float32")))
        if kind == "__tuple__":
            return tuple(_value(x, depth + 1) for x in v.get("items", config if isinstance(config, list) else []))
        if kind == "slice" or kind == "__slice__":
            parts = config if isinstance(config, Mapping) else {}
            return slice(*(parts.get(k) for k in ("start", "stop", "step")))
        if kind == "__ellipsis__":
            return Ellipsis
        return {str(k): _value(x, depth + 1) for k, x in v.items()}
    if isinstance(v, list):
        return [_value(x, depth + 1) for x in v]
    return v
