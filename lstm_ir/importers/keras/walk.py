"""The walk over a Keras model: every call of a layer goes to its handler, with the masks that Keras hands on."""

from __future__ import annotations

import heapq
from collections.abc import Mapping
from typing import Any

from lstm_ir import ops as li
from lstm_ir.importers.keras.call import LayerCall, Masked, Tensor, as_floats, policy, tensors
from lstm_ir.importers.keras.config import MODELS, LayerSpec, ModelSpec, Ref, mapped, model_spec, refs
from lstm_ir.importers.keras.holding import Holding, Store
from lstm_ir.importers.keras.inputs import OpenSizes, input_type
from lstm_ir.importers.keras.source import Source
from lstm_ir.importers.keras.table import IGNORED, LAYERS, OPERATIONS, LayerRule
from lstm_ir.importers.known import Knowledge
from lstm_ir.importers.refusals import WRONG, NodeRefusedError, Refusals, UnifiedError
from lstm_ir.importers.report import Outcome
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.graph import Value
from lstm_ir.ir.leaf import parameter
from lstm_ir.ir.location import Loc, at
from lstm_ir.ir.types import DType, TensorType

DEPTH = 32  # models deeper in models are refused
CALLS = 20_000  # of layers; a model that calls a model twice, which calls one twice, has many in a short file


class _Undefined:
    """What a layer gives that was refused: layers that read it are passed over."""


_UNDEFINED = _Undefined()


class _TooManyError(Exception):
    """More calls than are looked at: the walk ends."""


class Walk:
    """One walk. `outcomes` has the class of every layer that was looked at, and what became of its call."""

    def __init__(self, source: Source, sizes: OpenSizes, training: bool, seed: int) -> None:
        self.source, self.sizes, self.training, self.seed = source, sizes, training, seed
        self.knowledge = Knowledge()
        self.refusals = Refusals(source.file)
        self.store = Store()
        self.outcomes: list[tuple[str, Outcome | None]] = []
        self.inputs: list[Value] = []
        self.states: dict[str, tuple[Value, Value]] = {}  # by name: before and after a call
        self.results: Any = None
        self.spec: ModelSpec | None = None
        self._keys = 0
        self._step: Value | None = None
        self._depth = self._counted = 0

    def run(self) -> None:
        """Walk over all layers; UnifiedError where two names are one size, and the walk starts again."""
        top = self.source.spec
        try:
            self.spec = model_spec(top)
        except NodeRefusedError as e:
            self.refusals.add(top.name, top.kind, e)
            return
        trained = bool(top.config.get("trainable", True))
        try:
            self.results = self._model(self.spec, Holding(self.source.weights, "", trained, self.store), None)
        except _TooManyError as e:
            self.refusals.add(top.name, top.kind, e)

    def key(self) -> Value:
        """A key u32[2] for one use, by the number of the use and of the step."""
        if self._step is None:
            self._step = parameter("step", TensorType((), DType.i64))
            self.inputs.append(self._step)
        self._keys += 1
        return li.random_key(self.seed, self._step, stream=self._keys)

    def state(self, name: str, kind: TensorType) -> Value:
        """The state of a stateful layer before the call."""
        found = parameter(name, kind)
        self.states[name] = (found, found)
        return found

    def keep(self, name: str, after: Value) -> None:
        """The state after the call; a layer that is called twice goes on from its first call."""
        self.states[name] = (self.states[name][0], after)

    def _model(self, spec: ModelSpec, holding: Holding, inputs: list[Any] | None) -> Any:
        """The outputs of a model over tensors, or over inputs of the graph."""
        if self._depth > DEPTH:
            raise NodeRefusedError(f"models are nested deeper than {DEPTH}")
        self._depth += 1
        try:
            known: dict[Ref, Any] = {}
            self._counted += len(spec.layers) + sum(len(s.calls) for s in spec.layers)
            if self._counted > CALLS:
                raise _TooManyError(f"more than {CALLS} calls of layers")
            ends = list(refs(spec.inputs))
            if inputs is not None and len(inputs) != len(ends):
                raise NodeRefusedError(f"the model has {len(ends)} inputs, it is called with {len(inputs)}")
            sources = holding.children("layers", spec.layers)
            places = dict(zip((s.name for s in spec.layers), sources, strict=True))
            for k, ref in enumerate(ends):
                known[ref] = self._input(spec, ref, holding.path) if inputs is None else inputs[k]
            self._calls(spec, places, known)
            return mapped(spec.outputs, lambda r: self._lookup(known, r, spec.name))
        finally:
            self._depth -= 1

    def _input(self, spec: ModelSpec, ref: Ref, path: str) -> Any:
        layer = spec.by_name.get(ref.layer)
        with at(self._loc(ref.layer)):
            try:
                if layer is None or layer.kind != "InputLayer":
                    raise NodeRefusedError("the model names it as an input, and it is no InputLayer")
                made = parameter(layer.name, input_type(layer, self.sizes))
            except (NodeRefusedError, LstmIrError) as e:
                self.refusals.add(ref.layer, "InputLayer", e)
                self.outcomes.append(("InputLayer", Outcome.refused))
                return _UNDEFINED
        self.inputs.append(made)
        self.outcomes.append(("InputLayer", Outcome.taken))
        return Tensor(made)

    def _calls(self, spec: ModelSpec, places: Mapping[str, Holding], known: dict[Ref, Any]) -> None:
        """All calls, each as soon as its operands are there, in the order of the config."""
        calls = [(s, k) for s in spec.layers if s.kind != "InputLayer" for k in range(len(s.calls))]
        waiting: dict[Ref, list[int]] = {}
        missing = []
        for n, (s, k) in enumerate(calls):
            needed = set(refs([list(s.calls[k].args), dict(s.calls[k].kwargs)])) - known.keys()
            missing.append(len(needed))
            for ref in needed:
                waiting.setdefault(ref, []).append(n)
        ready = [n for n, many in enumerate(missing) if not many]
        while ready:
            s, k = calls[heapq.heappop(ready)]
            for i, result in enumerate(self._call(s, k, places[s.name], known)):
                known[Ref(s.name, k, i)] = result
                for n in waiting.pop(Ref(s.name, k, i), ()):
                    missing[n] -= 1
                    if not missing[n]:
                        heapq.heappush(ready, n)
        for (s, _), many in zip(calls, missing, strict=True):
            if many:
                self.refusals.add(places[s.name].path, s.kind, NodeRefusedError("no layer gives one of its operands"))

    def _lookup(self, known: Mapping[Ref, Any], ref: Ref, name: str) -> Any:
        if ref not in known:
            self.refusals.add(ref.layer, "output", NodeRefusedError(f"the model {name} has no such result"))
            return _UNDEFINED
        return known[ref]

    def _call(self, spec: LayerSpec, k: int, holding: Holding, known: Mapping[Ref, Any]) -> list[Any]:
        """The results of one call; what cannot be had is noted as a refusal."""
        call = spec.calls[k]
        args = [mapped(a, known.__getitem__) for a in call.args]
        kwargs = {n: mapped(v, known.__getitem__) for n, v in call.kwargs.items()}
        path = holding.path
        with at(self._loc(path)):
            try:
                entry = None if spec.kind in MODELS and spec.own else self._entry(spec)
                if _broken([args, kwargs]):
                    self.outcomes.append((spec.kind, Outcome.passed))
                    return _Undefinite()
                before = len(self.refusals)
                found = self.apply(spec, holding, args, kwargs, entry)
                outcome = Outcome.taken if len(self.refusals) == before else Outcome.passed
                self.outcomes.append((spec.kind, outcome))
                return found
            except UnifiedError:
                raise
            except (NodeRefusedError, LstmIrError) as e:
                self.outcomes.append((spec.kind, Outcome.refused))
                self.refusals.add(path, spec.kind, e)
            except WRONG as e:
                self.outcomes.append((spec.kind, Outcome.refused))
                self.refusals.add_wrong(path, spec.kind, e)
        return _Undefinite()

    def _entry(self, spec: LayerSpec) -> LayerRule:
        """The entry of a layer; RefusedError for what is not Keras' own, and for arguments that are not known."""
        if not spec.own:
            raise NodeRefusedError(f"the class is not one of Keras: it is {spec.path}")
        if spec.is_operation:
            return OPERATIONS.entry(spec.kind)
        entry = LAYERS.entry(spec.kind)
        unknown = sorted(set(spec.config) - entry.known - IGNORED)
        if unknown:
            raise NodeRefusedError(f"the argument {unknown[0]} is not known")
        return entry

    def apply(
        self, spec: LayerSpec, holding: Holding, args: list[Any], kwargs: dict[str, Any], entry: LayerRule | None = None
    ) -> list[Tensor]:
        """What a layer gives, with masks as Keras hands them on."""
        if spec.kind in MODELS and spec.own:
            return self._inner(spec, holding, args, kwargs)
        entry = self._entry(spec) if entry is None else entry
        if entry.cast:
            dtype = policy(spec)
            args = [_cast(a, dtype) for a in args]
            kwargs = {n: _cast(v, dtype) for n, v in kwargs.items()}
        given = kwargs.pop("mask", None)
        mask = _mask(given, args, kwargs)
        call = LayerCall(spec, self, holding, args, kwargs, mask)
        before = given if given is not None else call.masks
        made: Any = entry.build(call)
        if isinstance(made, Masked):
            return [Tensor(v, m) for v, m in zip(made.values, made.masks, strict=True)]
        values = [made] if isinstance(made, Value) else list(made)
        first = next(iter(_flat_masks(before)), None) if entry.masks else None
        return [Tensor(v, first if i == 0 else None) for i, v in enumerate(values)]

    def _inner(self, spec: LayerSpec, holding: Holding, args: list[Any], kwargs: dict[str, Any]) -> list[Any]:
        given = tensors(args[0] if args else list(kwargs.values()))
        mask = kwargs.get("mask")
        if mask is not None:
            found = [*_flat_masks(mask), *[None] * len(given)]
            given = [Tensor(t.value, t.mask if m is None else m) for t, m in zip(given, found, strict=False)]
        out = self._model(model_spec(spec), holding, given)
        flat: list[Any] = []
        _flatten(out, flat)
        return flat

    def _loc(self, name: str) -> Loc:
        return Loc(self.source.file, 0, node=name)


class _Undefinite(list):  # type: ignore[type-arg]
    """Results of a call that was refused: as many as anybody asks for."""

    def __iter__(self) -> Any:
        return iter([_UNDEFINED] * 64)


def _flatten(tree: Any, out: list[Any]) -> None:
    if isinstance(tree, (Tensor, _Undefined)):
        out.append(tree)
    elif isinstance(tree, Mapping):
        for k in sorted(tree):
            _flatten(tree[k], out)
    elif isinstance(tree, (list, tuple)):
        for t in tree:
            _flatten(t, out)


def _broken(tree: Any) -> bool:
    found: list[Any] = []
    _flatten(tree, found)
    return any(t is _UNDEFINED for t in found)


def _cast(tree: Any, dtype: DType) -> Any:
    if isinstance(tree, Tensor):
        return Tensor(as_floats(tree.value, dtype), tree.mask)
    if isinstance(tree, Mapping):
        return {k: _cast(v, dtype) for k, v in tree.items()}
    if isinstance(tree, (list, tuple)):
        return type(tree)(_cast(t, dtype) for t in tree)
    return tree


def _mask(mask: Any, args: list[Any], kwargs: Mapping[str, Any]) -> Any:
    """The mask that a layer is called with: the given one, or that of its only argument with tensors."""
    if mask is not None:
        flat = _flat_masks(mask)
        return flat[0] if len(flat) == 1 else flat
    held = [a for a in [*args, *kwargs.values()] if tensors(a)]
    if len(held) != 1:
        return None  # Keras 3 looks for an argument `NAME_mask`, which these layers do not have
    masks = [t.mask for t in tensors(held[0])]
    return masks[0] if isinstance(held[0], Tensor) else masks


def _flat_masks(tree: Any) -> list[Value | None]:
    if isinstance(tree, Tensor):
        return [tree.value]
    if isinstance(tree, (list, tuple)):
        return [m for t in tree for m in _flat_masks(t)]
    return [tree]
