"""`li.from_tf`: graphs and programs of TensorFlow's files."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from lstm_ir.importers.named_sizes import need_mappings
from lstm_ir.importers.naming import graph_name
from lstm_ir.importers.refusals import UnifiedError
from lstm_ir.importers.tensorflow.entries import entries_of
from lstm_ir.importers.tensorflow.interface import Bindings, check_names
from lstm_ir.importers.tensorflow.ports import Ports, ports
from lstm_ir.importers.tensorflow.reading import Source, read
from lstm_ir.importers.tensorflow.variables import StateError
from lstm_ir.importers.tensorflow.walk import Walk
from lstm_ir.ir.errors import IRError, ModelError
from lstm_ir.ir.graph import Graph
from lstm_ir.ir.program import Program
from lstm_ir.ir.types import DimLike

if TYPE_CHECKING:
    from lstm_ir.importers.tensorflow.reading import Model


def from_tf(
    model: Model,
    *,
    checkpoint: str | os.PathLike[str] | None = None,
    signature: str | None = None,
    outputs: Sequence[str] | None = None,
    constants: Mapping[str, Any] | None = None,
    sizes: Mapping[str, DimLike] | None = None,
) -> Graph | Program:
    """The graph of a TensorFlow model, read without TensorFlow.

    model: a SavedModel's folder, a GraphDef (`.pb`), a graph with its `.meta`, or bytes of a GraphDef. checkpoint:
    what stands before `.index`, for variables that the model does not bring. signature: one of a SavedModel's;
    without it all, those that are the same once. outputs: of a GraphDef the results that are wanted (`softmax`,
    `lstm:6`); without it those that no other node reads. constants: arrays for inputs that are to be fixed.
    sizes: numbers or names for open sizes, which are called B on axis 0, T on axis 1, and `x_2` after input and axis
    elsewhere; `x_0` is the name of one axis alone.

    A Graph with the names of the signature's inputs and outputs, or of the nodes; variables of floats are weights.
    A Program where there are several signatures, or where a signature writes variables: these are its state.
    Raises ModelError, which lists every node that is not taken.
    """
    made = walks(model, checkpoint, signature, outputs, constants, sizes)
    graphs = {name: (walk, graph_of(walk, name)) for name, walk in made.items()}
    return entries_of(next(iter(made.values())).source.file, graphs)


def walks(
    model: Model, checkpoint: str | os.PathLike[str] | None, signature: str | None, outputs: Sequence[str] | None,
    constants: Mapping[str, Any] | None, sizes: Mapping[str, DimLike] | None,
) -> dict[str, Walk]:  # fmt: skip
    """The walks over all signatures that are asked for, by name."""
    need_mappings("from_tf", constants=constants, sizes=sizes)
    source = read(model, checkpoint)
    chosen = ports(source, signature, outputs)
    check_names(source.file, (i for p in chosen.values() for i in p.inputs.values()), constants or {}, sizes or {})
    made: dict[str, Walk] = {}
    state: frozenset[str] = frozenset()
    while len(made) < len(chosen) or any(walk.state != state for walk in made.values()):
        for name, p in chosen.items():  # what one signature writes is state of the others too
            if name not in made or made[name].state != state:
                made[name] = walked(source, p, constants or {}, sizes or {}, state)
                state = made[name].state
    return made


def walked(
    source: Source, chosen: Ports, constants: Mapping[str, Any], sizes: Mapping[str, DimLike],
    state: frozenset[str] = frozenset(),
) -> Walk:  # fmt: skip
    """The walk over one signature, with what it made and what it refused. `state` are variables known to be written."""
    bindings = Bindings(source.file, constants, sizes)
    while True:  # as often as two names turn out to be one size, or a variable to be state
        walk = Walk(source, bindings, chosen.inputs, chosen.outputs, state)
        try:
            walk.run()
            return walk
        except UnifiedError as e:
            bindings.unify(e.name, e.by)
        except StateError as e:
            state = e.names


def graph_of(walk: Walk, name: str) -> Graph:
    """The graph of a walk; its state is inputs and outputs. ModelError with all refusals where there is one."""
    walk.refusals.raise_any()
    written = walk.variables.written
    outputs = {n: walk.output(n) for n in walk.results}
    outputs |= {next_name(n, outputs): v for n, v in written.items()}
    params = [*walk.inputs, *walk.variables.params.values()]
    try:
        return Graph(graph_name(name), params, outputs)
    except IRError as e:
        raise ModelError(f"{walk.source.file}: {e}") from e


def next_name(state: str, outputs: Mapping[str, Any]) -> str:
    """What the output is called that a state becomes."""
    name = f"{state}_next"
    while name in outputs:
        name += "_"
    return name
