"""A TensorFlow model by TensorFlow itself, as what a graph is compared with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lstm_ir.importers.tensorflow.entries import MAIN
from lstm_ir.importers.tensorflow.ports import ports
from lstm_ir.importers.tensorflow.reading import SAVED, read
from lstm_ir.importers.tensorflow.sessions import in_session
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
    """A signature of a SavedModel, or results of a graph, as TensorFlow runs them.

    The arguments are those of `from_tf`; without `signature` it is the one that `examine` takes of several.
    """

    def __init__(
        self, model: Model, constants: Mapping[str, Any] | None = None, *,
        checkpoint: str | os.PathLike[str] | None = None, signature: str | None = None,
        outputs: Sequence[str] | None = None,
    ) -> None:  # fmt: skip
        try:
            import tensorflow
        except ImportError as e:
            raise ModelError("to compare with a TensorFlow model needs TensorFlow: pip install tensorflow") from e
        source = read(model, checkpoint)
        self.name = f"{source.file} by TensorFlow {tensorflow.__version__}"
        self.bytes: int | None = source.bytes
        chosen = ports(source, signature, outputs)
        self._signature = MAIN if MAIN in chosen else next(iter(chosen))
        found = chosen[self._signature]
        unknown = sorted(set(constants or {}) - {i.name for i in found.inputs.values()})
        if unknown:
            raise ModelError(f"{source.file}: constants has {unknown[0]!r}, which the model does not have")
        self._constants = {n: np.asarray(a) for n, a in (constants or {}).items()}
        folder = _folder(model)
        # What TensorFlow 2 loads has its signatures with the values of its folder, and nothing else.
        self._folder = folder if source.signatures and checkpoint is None and outputs is None else None
        try:
            if self._folder is not None:
                self._call = _loaded(tensorflow, self._folder, self._signature)
            else:
                self._call = in_session(tensorflow, model if folder is None else folder, checkpoint, found)
        except Exception as e:  # a class of its own for each kind of fault
            first = (str(e).splitlines() or [type(e).__name__])[0]
            raise ModelError(f"{source.file}: TensorFlow does not take it: {first}") from e

    def __call__(self, arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        """Results by name."""
        found: Mapping[str, Any] = self._call({**arrays, **self._constants})
        return found

    def cold(self, folder: Path, arrays: Path) -> str | None:
        """The import of TensorFlow, the load of a SavedModel, and one call; of other graphs it is not known."""
        if self._folder is None or self._constants:
            return None
        return COLD.format(model=str(self._folder), name=self._signature, arrays=str(arrays))


def _folder(model: Any) -> Path | None:
    """The folder of a SavedModel; None of any other model."""
    if not isinstance(model, (str, os.PathLike)):
        return None
    path = Path(model).resolve()
    if path.is_dir():
        return path
    return path.parent if path.name == SAVED else None


def _loaded(tensorflow: Any, folder: Path, signature: str) -> Any:
    """A callable from arrays by name to arrays by name."""
    function = tensorflow.saved_model.load(str(folder)).signatures[signature]

    def call(arrays: Mapping[str, Any]) -> Mapping[str, Any]:
        tensors = {n: tensorflow.constant(a) for n, a in arrays.items()}
        return {n: v.numpy() for n, v in function(**tensors).items()}

    call.held = function  # type: ignore[attr-defined]  # TensorFlow lets go of variables that nobody holds
    return call
