"""Results that stay where they were computed, for the next call or for another library."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

Array = np.ndarray[Any, Any]
HOST = 1  # DLPack's number of the processor's memory


class Home(NamedTuple):
    """A device of the runtime, and its word."""

    device: Any
    word: str


class Exchange(NamedTuple):
    """What DLPack asks for: kind and number of the device, and a capsule over the runtime's view."""

    place: tuple[int, int]
    capsule: Callable[[Any], object]
    copies: bool = False  # the capsule is over a copy


class DeviceArray(NDArrayOperatorsMixin):
    """A result of a call with `keep=True`: its elements lie on the device until somebody asks for them.

    Executables of the same device take it as an input without a copy. `np.asarray(a)` and `a.numpy()` copy it to the
    host, where it does not lie there. `torch.from_dlpack(a)` and others take its memory on the host, and must not
    write there; of a GPU they get a copy on the device. Operators and NumPy's functions compute on the host, and give
    NumPy's arrays; so do pickles and copies. shape: a tuple of ints.
    dtype: NumPy's, `ml_dtypes` for bf16. device: as in `vulkan:0`.
    """

    __slots__ = ("_exchange", "_fetch", "device", "dtype", "home", "shape", "view")

    def __init__(
        self, view: Any, shape: tuple[int, ...], dtype: np.dtype[Any], home: Home, fetch: Callable[[Any], Array],
        exchange: Exchange | None,
    ) -> None:  # fmt: skip
        """view: the runtime's. fetch: the view as a host array. exchange: None where DLPack knows no such device."""
        self.view, self.shape, self.dtype = view, tuple(shape), dtype
        self.home, self.device = home.device, home.word
        self._fetch, self._exchange = fetch, exchange

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def size(self) -> int:
        """How many elements it has."""
        return int(np.prod(self.shape, dtype=np.int64))

    @property
    def nbytes(self) -> int:
        """Bytes of its elements."""
        return self.size * self.dtype.itemsize

    @property
    def on_host(self) -> bool:
        """Whether it lies in the processor's memory, so that `numpy()` copies nothing."""
        return self._exchange is not None and self._exchange.place[0] == HOST

    def numpy(self) -> Array:
        """Its elements in host memory; not to be written where they are the result's own memory."""
        return self._fetch(self.view)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        other = dtype is not None and self.dtype != dtype
        if copy is False and (other or not self.on_host):
            what = f"{self.dtype} elements as {np.dtype(dtype)}" if other else f"an array on {self.device}"
            raise ValueError(f"{what} cannot be had without a copy")
        a = self.numpy()
        if other:
            return a.astype(dtype)
        return a.copy() if copy else a

    def __dlpack__(
        self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: bool | None = None
    ) -> object:
        """A capsule of DLPack over its memory, on a GPU over a copy there. BufferError where there is none."""
        place = self.__dlpack_device__()
        if dl_device is not None and tuple(dl_device) != place:
            raise BufferError(f"a result on {self.device} cannot be exchanged as memory of DLPack's {dl_device}")
        assert self._exchange is not None
        if copy is not None and copy != self._exchange.copies:
            how = "as a copy" if self._exchange.copies else "as it lies, not copied"
            raise BufferError(f"a result on {self.device} is exchanged {how}: copy={copy} is not taken")
        return self._exchange.capsule(self.view)

    def __dlpack_device__(self) -> tuple[int, int]:
        if self._exchange is None:
            raise BufferError(f"memory of {self.device} cannot be exchanged by DLPack: np.asarray(a) copies it")
        return self._exchange.place

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("an array without axes has no length")
        return self.shape[0]

    def __getitem__(self, at: Any) -> Any:
        return self.numpy()[at]

    def __float__(self) -> float:
        return float(self.numpy())

    def __int__(self) -> int:
        return int(self.numpy())

    def __bool__(self) -> bool:
        return bool(self.numpy())

    def __index__(self) -> int:
        return operator.index(self.numpy())

    def __format__(self, spec: str) -> str:
        return format(self.numpy(), spec) if spec else str(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return np.array, (np.array(self),)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        if any(isinstance(a, DeviceArray) for a in options.get("out", ())):
            raise TypeError("a DeviceArray is not written to: np.array(a) is a copy that may be")
        return getattr(ufunc, method)(*(a.numpy() if isinstance(a, DeviceArray) else a for a in inputs), **options)

    def __getattr__(self, name: str) -> Any:
        instead = f": np.asarray(a).{name} is NumPy's" if hasattr(np.ndarray, name) else ""
        raise AttributeError(f"a DeviceArray has no {name}{instead}", name=name, obj=self)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype}[{','.join(map(str, self.shape))}] on {self.device})"


def of_host(a: Array, device: str) -> DeviceArray:
    """A result in the processor's memory, read-only for who asks NumPy for it."""
    frozen = a.view()
    frozen.flags.writeable = False
    exchange = Exchange((HOST, 0), lambda _: _capsule_of(a))
    return DeviceArray(frozen, a.shape, a.dtype, Home(None, device), lambda view: view, exchange)


def _capsule_of(a: Array) -> object:
    try:
        return a.__dlpack__()
    except (BufferError, TypeError) as e:  # bf16: NumPy does not export elements that it does not know
        raise BufferError(f"NumPy does not exchange elements of {a.dtype}: {e}") from e
