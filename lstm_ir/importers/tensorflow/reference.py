"""A TensorFlow model by TensorFlow itself, as what a graph is compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.importers.tensorflow.entries import MAIN
from lstm_ir.importers.tensorflow.ports import Ports, ports
from lstm_ir.importers.tensorflow.reading import message_of, read
from lstm_ir.ir.errors import ModelError

if TYPE_CHECKING:
    from lstm_ir.importers.tensorflow.reading import Model

COLD = """\
import os
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy, tensorflow
with numpy.load({arrays!r}) as given:
    arrays = {{n: tensorflow.constant(a) for n, a in given.items()}}
tensorflow.saved_model.load({model!r}).signatures[{name!r}](**arrays)
"""


class TensorFlow:
    """A signature of a SavedModel, or a frozen graph, as TensorFlow runs it; constants of the graph are given to it."""

    def __init__(self, model: Model, constants: Mapping[str, Any] | None = None) -> None:
        try:
            import tensorflow
        except ImportError as e:
            raise ModelError("to compare with a TensorFlow model needs TensorFlow: pip install tensorflow") from e
        source = read(model)
        self.name = f"{source.file} by TensorFlow {tensorflow.__version__}"
        self.bytes: int | None = source.bytes
        chosen = ports(source, None, None)
        self._signature = MAIN if MAIN in chosen else next(iter(chosen))
        found = chosen[self._signature]
        unknown = sorted(set(constants or {}) - {i.name for i in found.inputs.values()})
        if unknown:
            raise ModelError(f"{source.file}: constants has {unknown[0]!r}, which the model does not have")
        self._constants = {n: np.asarray(a) for n, a in (constants or {}).items()}
        self._folder = _folder(model) if source.signatures else None
        try:
            self._call = _loaded(tensorflow, self._folder, self._signature, model, found)
        except Exception as e:  # a class of its own for each kind of fault
            first = (str(e).splitlines() or [type(e).__name__])[0]
            raise ModelError(f"{source.file}: TensorFlow does not take it: {first}") from e

    def __call__(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Results by name."""
        found: Mapping[str, Any] = self._call({**arrays, **self._constants})
        return found

    def cold(self, folder: Path, arrays: Path) -> str | None:
        """The import of TensorFlow, the load of a SavedModel, and one call; of a frozen graph it is not known."""
        if self._folder is None or self._constants:
            return None
        return COLD.format(model=str(self._folder), name=self._signature, arrays=str(arrays))


def _folder(model: Any) -> Path | None:
    if not isinstance(model, (str, os.PathLike)):
        return None
    path = Path(model).resolve()
    return path if path.is_dir() else path.parent


def _loaded(tensorflow: Any, folder: Path | None, signature: str, model: Any, graph_ports: Ports) -> Any:
    """A callable from arrays by name to arrays by name."""
    if folder is not None:
        function = tensorflow.saved_model.load(str(folder)).signatures[signature]

        def call(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
            tensors = {n: tensorflow.constant(a) for n, a in arrays.items()}
            return {n: v.numpy() for n, v in function(**tensors).items()}

        call.held = function  # type: ignore[attr-defined]  # TensorFlow lets go of variables that nobody holds
        return call
    v1 = tensorflow.compat.v1
    data = message_of(Path(model)) if isinstance(model, (str, os.PathLike)) else model
    definition = v1.GraphDef.FromString(data if isinstance(data, bytes) else data.SerializeToString())
    graph = tensorflow.Graph()
    with graph.as_default():
        v1.import_graph_def(definition, name="")
    session = v1.Session(graph=graph)
    places = {i.name: f"{r.node}:{r.index}" for r, i in graph_ports.inputs.items()}
    wanted = {n: f"{r.node}:{r.index}" for n, r in graph_ports.outputs.items()}

    def run(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        results: Mapping[str, Any] = session.run(wanted, {places[n]: a for n, a in arrays.items()})
        return results

    return run
