"""`li.to_torch`: weights that were trained here, written back into the module that they came from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from lstm_ir.importers.trained import fitting
from lstm_ir.ir.errors import MissingLibraryError, ModelError
from lstm_ir.ir.has_weights import HasWeights

if TYPE_CHECKING:
    from torch.nn import Module


M = TypeVar("M", bound="Module")


def to_torch(weights: HasWeights | Mapping[str, Any], module: M) -> M:
    """Write weights into a module's parameters and buffers of their names; the module itself comes back.

    weights: an executable (of one that trains, its weights as trained so far), or arrays by name. Names of which the
    module has others may be missing; each name that is given has to be the module's, with its shape and dtype. Nothing
    is written where one is not: ModelError.
    """
    try:
        import torch
    except ImportError as e:
        raise MissingLibraryError("to_torch needs torch: pip install torch", name="torch") from e
    from lstm_ir.importers.torch.tensors import dtype_of

    if not isinstance(module, torch.nn.Module):
        raise ModelError(f"to_torch: the second argument is an nn.Module, got {type(module).__name__}")
    for name, tensor in module.state_dict(keep_vars=True).items():
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise ModelError(f"to_torch: {type(module).__name__}: {name} has no shape yet: call the module first")
        if isinstance(tensor, torch.Tensor) and tensor.is_meta:
            raise ModelError(f"to_torch: {type(module).__name__}: {name} is on the device meta, and keeps no elements")
    written = fitting(
        "to_torch", weights, type(module).__name__, module.state_dict(keep_vars=True),
        lambda tensor: (dtype_of(tensor.dtype), tuple(tensor.shape)),
    )  # fmt: skip
    with torch.no_grad():
        for tensor, array in written:
            bits = np.ascontiguousarray(array)
            # NumPy's bfloat16 is not NumPy's own: PyTorch takes its bits.
            source = torch.from_numpy(bits.view(np.int16).copy()).view(torch.bfloat16) if _brain(array) else (
                torch.from_numpy(bits.copy())
            )  # fmt: skip
            tensor.copy_(source.reshape(tensor.shape))
    return module


def _brain(array: np.ndarray[Any, Any]) -> bool:
    """Whether NumPy has the elements from `ml_dtypes`."""
    return bool(array.dtype.name == "bfloat16")
