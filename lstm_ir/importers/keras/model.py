"""`li.from_keras`: a Keras model as a graph, or as a program where it keeps state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lstm_ir.importers.keras import handlers
from lstm_ir.importers.keras.config import Ref, model_spec
from lstm_ir.importers.keras.inputs import OpenSizes
from lstm_ir.importers.keras.source import Source, read
from lstm_ir.importers.keras.walk import Walk
from lstm_ir.importers.named_sizes import need_mappings
from lstm_ir.importers.naming import word
from lstm_ir.importers.refusals import NodeRefusedError, UnifiedError
from lstm_ir.ir.errors import IRError, ModelError
from lstm_ir.ir.graph import Graph, Value
from lstm_ir.ir.options import is_int
from lstm_ir.ir.program import Program
from lstm_ir.ir.types import DimLike
from lstm_ir.streaming.stateful import stateful

assert handlers.__doc__  # importing them registers every layer


def from_keras(
    model: Any, *, sizes: Mapping[str, DimLike] | None = None, training: bool = False, seed: int = 0
) -> Graph | Program:
    """The graph of a Keras model, with its names of inputs, outputs and weights; a program where layers are stateful.

    model: a live Functional or Sequential model of Keras 3 on any backend, or the path of a `.keras` or `.h5` file,
    which is read without Keras. sizes: numbers, or other names, for open sizes: `B` is the batch, `T` the only other
    one; where there are several, an axis is called after its input, `x_1`. training: the model as it trains: dropout
    drops, by keys of `seed` and of the input `step` (i64[]), which `train_step` feeds. Raises ModelError, which lists
    every layer that is not taken.
    """
    source = read(model)
    walk = walked(source, checked(source, sizes, training, seed))
    graph, kept = graph_of(walk)
    return stateful(graph, kept) if kept else graph


class WalkOptions:
    """What a walk is asked for."""

    def __init__(self, sizes: OpenSizes | None, training: bool, seed: int) -> None:
        self.sizes, self.training, self.seed = sizes, training, seed


def checked(source: Source, sizes: Any, training: Any, seed: Any) -> WalkOptions:
    """The arguments of `from_keras`; ModelError for wrong ones."""
    need_mappings("from_keras", sizes=sizes)
    if not isinstance(training, bool) or not is_int(seed):
        raise ModelError(f"from_keras: training is {training!r:.40}, seed {seed!r:.40}: expected a bool and an int")
    try:
        found = OpenSizes(source.file, model_spec(source.spec), sizes or {})
    except NodeRefusedError as e:
        raise ModelError(f"{source.file}: 1 refusal\n  {source.spec.name} ({source.spec.kind}): {e}") from None
    return WalkOptions(found, training, int(seed))


def walked(source: Source, options: WalkOptions) -> Walk:
    """The walk over the whole model, with what it made and what it refused."""
    assert options.sizes is not None
    while True:  # as often as two names turn out to be one size
        walk = Walk(source, options.sizes, options.training, options.seed)
        try:
            walk.run()
            return walk
        except UnifiedError as e:
            options.sizes.unify(e.name, e.by)


def graph_of(walk: Walk) -> tuple[Graph, dict[str, str]]:
    """The graph of the whole model, and which output each state becomes; ModelError with all refusals."""
    walk.refusals.raise_any()
    file = walk.source.file
    assert walk.spec is not None
    outputs: dict[str, Value] = {n: t.value for n, t in named(walk.spec.outputs, walk.results).items()}
    inputs, kept = list(walk.inputs), {}
    for name, (before, after) in walk.states.items():
        inputs.append(before)
        kept[name] = f"{name}_next"
        outputs[kept[name]] = after
    try:
        return Graph(word(walk.spec.name) or "model", inputs, outputs), kept
    except IRError as e:
        raise ModelError(f"{file}: {e}") from e


def named(places: Any, results: Any) -> dict[str, Any]:
    """Results by the keys of a dict, or by the layers' names; what stands twice is numbered."""
    out: dict[str, Any] = {}

    def put(name: str, result: Any) -> None:
        found, k = name, 0
        while found in out:
            k += 1
            found = f"{name}_{k}"
        out[found] = result

    def walk(ref: Any, result: Any, name: str | None) -> None:
        if isinstance(ref, Ref):
            put(ref.layer if name is None else name, result)
        elif isinstance(ref, Mapping):
            for key in ref:
                walk(ref[key], result[key], str(key))
        else:
            for r, v in zip(ref, result, strict=True):
                walk(r, v, None)

    walk(places, results, None)
    return out
