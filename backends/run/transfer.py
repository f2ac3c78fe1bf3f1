"""NumPy arrays into device buffers and back."""

from __future__ import annotations

import ctypes
import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from lstm_ir.backends import bindings, process
from lstm_ir.backends.memory import ALIGNMENT, empty
from lstm_ir.backends.run import runtime
from lstm_ir.backends.run.tuned import KEPT_BYTES, LENT_BYTES, STAGED_BYTES
from lstm_ir.ir.device_array import DeviceArray, Exchange, Home, of_host
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.types import DType

Array = np.ndarray[Any, Any]
Extent = tuple[int, int]  # of memory: the first byte's address, and the one behind the last
Results = tuple[tuple[str, "BorderType"], ...]  # names of a call's results

# NumPy's own ways to an array's address run Python code of theirs: 11 us where caches are cold.
_byte, _address = ctypes.c_char.from_buffer, ctypes.addressof
_NO_BUFFER = (TypeError, ValueError, BufferError)  # of an array that is read-only, or of a type without buffers
_DLPACK = {"cuda": 2, "hip": 10}  # its numbers of devices whose memory other libraries take
_ELEMENT = {
    "f16": "FLOAT_16", "bf16": "BFLOAT_16", "f32": "FLOAT_32", "f64": "FLOAT_64",
    "i8": "SINT_8", "u8": "UINT_8", "i32": "SINT_32", "u32": "UINT_32", "i64": "SINT_64",
    "i1": "BOOL_8",
}  # fmt: skip


class BorderType:
    """An element type at a module's border, for IREE and for NumPy; a boolean is a byte there."""

    __slots__ = ("dtype", "hal", "raw")

    def __init__(self, kind: DType) -> None:
        rt = bindings.native()
        self.hal = getattr(rt.HalElementType, _ELEMENT[kind.value])
        self.dtype = kind.numpy
        # ml_dtypes' arrays do not export their memory
        self.raw = np.dtype(np.uint16) if kind is DType.bf16 else self.dtype


class Slots(NamedTuple):
    """Buffers for a call's inputs, written before each call, and a list of them that every call may have."""

    arguments: Any
    views: list[Any]
    places: list[Array]
    block: Array  # all of their memory
    large: list[int]  # inputs that are better lent, where they can be


def extent(a: Array) -> Extent:
    """Of a contiguous array."""
    try:
        first = _address(_byte(a))  # type: ignore[arg-type]
    except _NO_BUFFER:
        first = a.__array_interface__["data"][0]
    return first, first + a.nbytes


class TakenMemory:
    """Memory that the outputs of a call may not share, and whether one of them did, or new state that of an input."""

    def __init__(self, inputs: list[Extent], state: list[Extent]) -> None:
        self._inputs, self._taken = inputs, [*inputs, *state]
        self.shared = False

    def adds(self, new: Extent | None) -> bool:
        """Take the memory of new state, if it is the host's; whether that is an input's."""
        if new is None:
            return False
        self._taken.append(new)
        return self._meets(new, self._inputs)

    def apart(self, a: Array) -> Array:
        """`a`, or a copy where its memory is taken; then it is taken."""
        own = extent(a)
        if self._meets(own, self._taken):
            return a.copy()
        self._taken.append(own)
        return a

    def _meets(self, new: Extent, others: list[Extent]) -> bool:
        met = any(start < new[1] and new[0] < end for start, end in others)
        self.shared |= met
        return met


def mover(device: Any, word: str, *, stateful: bool) -> Mover:
    """How arrays reach `device`, and return."""
    return HostMover(device, word, stateful) if word.startswith("local-") else DeviceMover(device, word)


class Mover(ABC):
    """Copies inputs into fresh device buffers."""

    def __init__(self, device: Any, word: str) -> None:
        rt = bindings.native()
        self.device, self.word, self.allocator = device, word, device.allocator
        self.list, self.view = rt.VmVariantList, rt.HalBufferView
        self._copy = self.allocator.allocate_buffer_copy
        self._memory = int(rt.MemoryType.DEVICE_LOCAL)
        self._usage = int(rt.BufferUsage.DEFAULT)

    def slots(self, values: list[Array], kinds: tuple[BorderType, ...]) -> Slots | None:
        """Reusable inputs for calls with these shapes, where that is faster; else None."""
        return None

    def lendable(self, a: Array) -> bool:
        """Whether a call may read the memory of `a` itself."""
        return False

    def arguments(self, values: list[Array], kinds: tuple[BorderType, ...]) -> Any:
        """The argument list of a call."""
        out = self.list(len(values))
        for a, kind in zip(values, kinds, strict=True):
            out.push_ref(self.put(a, kind))
        return out

    def put(self, a: Array, kind: BorderType) -> Any:
        """A buffer view with a copy of the contiguous array `a`."""
        raw = a.view(kind.raw)
        return self._copy(self._memory, self._usage, self.device, raw, kind.hal)

    @abstractmethod
    def arrays(self, results: Any, kinds: Results, taken: TakenMemory | None) -> dict[str, Any]:
        """The results by name as arrays of their own; without `taken` nothing looks whether they are."""

    @abstractmethod
    def kept(self, results: Any, kinds: Results, taken: TakenMemory | None) -> dict[str, Any]:
        """The results where they are, as `DeviceArray`; as in `arrays`."""

    def extents(self, values: list[Array]) -> list[Extent]:
        """Memory of a call's inputs that the call may read as it is."""
        return []

    def extent(self, view: Any, kind: BorderType) -> Extent | None:
        """Of a buffer that stays on the device; None where that is not the host's memory, or it has no elements."""
        return None


class HostMover(Mover):
    """The CPU: aligned inputs are lent, outputs are the runtime's own fresh buffers."""

    def __init__(self, device: Any, word: str, stateful: bool) -> None:
        rt = bindings.native()
        super().__init__(device, word)
        # A module with state may keep an input as its new state: then the caller's memory is not lent.
        self._lends = not stateful
        self._lent = self._memory | int(rt.MemoryType.HOST_VISIBLE)

    def slots(self, values: list[Array], kinds: tuple[BorderType, ...]) -> Slots | None:
        """One block for all inputs, where it is small: writing there beats allocating."""
        if sum(a.nbytes for a in values) >= KEPT_BYTES:
            return None
        starts = [0]
        for a in values:
            starts.append(-(-(starts[-1] + a.nbytes) // ALIGNMENT) * ALIGNMENT)
        block = empty((starts[-1] + ALIGNMENT,), np.dtype(np.uint8))
        places, views, arguments = [], [], self.list(len(values))
        for a, kind, start in zip(values, kinds, starts, strict=False):
            memory = block[start : start + max(a.nbytes, ALIGNMENT)]
            views.append(self.lent(memory, kind, a.shape))
            arguments.push_ref(views[-1])
            places.append(memory[: a.nbytes].view(kind.dtype).reshape(a.shape))
        large = [i for i, a in enumerate(values) if a.nbytes >= LENT_BYTES and self._lends]
        return Slots(arguments, views, places, block, large)

    def lendable(self, a: Array) -> bool:
        """Whether compiled code may read this memory; it would fault where it is not aligned."""
        try:
            return _address(_byte(a)) % ALIGNMENT == 0  # type: ignore[arg-type]
        except _NO_BUFFER:
            aligned = a.__array_interface__["data"][0] % ALIGNMENT == 0
            return aligned and bool(a.flags.writeable)

    def put(self, a: Array, kind: BorderType) -> Any:
        """A view of `a` itself where it is large and aligned, else of a copy."""
        if not self._lends or a.nbytes < LENT_BYTES or not self.lendable(a):
            return super().put(a, kind)
        return self.lent(a.view(kind.raw), kind)

    def lent(self, a: Array, kind: BorderType, shape: tuple[int, ...] | None = None) -> Any:
        """A view of this memory, which is aligned."""
        buffer = self.allocator.import_host_allocation(a, self._lent, self._usage)
        return self.view(buffer, a.shape if shape is None else shape, kind.hal)

    def arrays(self, results: Any, kinds: Results, taken: TakenMemory | None) -> dict[str, Any]:
        """Views that own their buffer; an output that is an input, or another output, is copied."""
        out: dict[str, Any] = {}
        at = 0
        for name, kind in kinds:
            view = results.get_as_object(at, self.view)
            at += 1
            shape = view.shape
            if 0 in shape:
                out[name] = np.empty(shape, kind.dtype)
                continue
            a: Array = np.ndarray(shape, kind.dtype, view.map())
            out[name] = a if taken is None else taken.apart(a)
        return out

    def kept(self, results: Any, kinds: Results, taken: TakenMemory | None) -> dict[str, Any]:
        """The results' own memory."""
        return {n: of_host(a, "cpu") for n, a in self.arrays(results, kinds, taken).items()}

    def extents(self, values: list[Array]) -> list[Extent]:
        """Of those that may be lent."""
        return [extent(a) for a in values if self._lends and a.nbytes >= LENT_BYTES]

    def extent(self, view: Any, kind: BorderType) -> Extent | None:
        """Of any buffer with elements."""
        shape = view.shape
        return None if 0 in shape else extent(np.ndarray(shape, kind.dtype, view.map()))


class DeviceMover(Mover):
    """A GPU: outputs come back through staging buffers.

    IREE's own import of host memory wants page alignment on Vulkan, which NumPy does not give.
    """

    def __init__(self, device: Any, word: str) -> None:
        rt = bindings.native()
        super().__init__(device, word)
        self._fence = rt.HalFence
        self._staging = Staging(self.allocator)

    def arrays(self, results: Any, kinds: Results, taken: TakenMemory | None) -> dict[str, Any]:
        """Copies in host memory."""
        views = [results.get_as_object(i, self.view) for i in range(len(kinds))]
        return dict(zip((n for n, _ in kinds), self._fetched(views, [k for _, k in kinds]), strict=True))

    def put(self, a: Any, kind: BorderType) -> Any:
        """A view with a copy; of what lies on this device its own view."""
        if isinstance(a, DeviceArray):
            if a.home is self.device:
                return a.view
            a = np.ascontiguousarray(a.numpy())
        return super().put(a, kind)

    def kept(self, results: Any, kinds: Results, taken: TakenMemory | None) -> dict[str, Any]:
        """The results' views."""
        out: dict[str, Any] = {}
        for i, (name, kind) in enumerate(kinds):
            view = results.get_as_object(i, self.view)
            fetch, home = partial(self._host, kind=kind), Home(self.device, self.word)
            out[name] = DeviceArray(view, view.shape, kind.dtype, home, fetch, self._exchange())
        return out

    def _host(self, view: Any, kind: BorderType) -> Array:
        process.check()
        with runtime.reporting("a result that was kept"):
            return self._fetched([view], [kind])[0]

    def _exchange(self) -> Exchange | None:
        """Of DLPack: what other libraries take of this kind of device."""
        number = _DLPACK.get(self.word.partition(":")[0])
        if number is None:
            return None
        return Exchange((number, 0), partial(self._capsule, number), copies=True)

    def _capsule(self, number: int, view: Any) -> object:
        """DLPack's, over a copy on this device: drivers do not export what their pools gave a call."""
        process.check()
        source = view.get_buffer()
        try:
            with runtime.reporting("a result that was kept"):
                own = self.allocator.allocate_buffer(self._memory, self._usage, max(1, source.byte_length()))
                if 0 not in view.shape:
                    self._queue_copy(source, own).wait(1)
                copy = self.view(own, view.shape, view.element_type)
                return self.device.create_dlpack_capsule(copy, number, 0)
        except LstmIrError as e:
            raise BufferError(f"memory of {self.word} cannot be exchanged by DLPack: {e}") from e

    def _fetched(self, views: list[Any], kinds: Sequence[BorderType]) -> list[Array]:
        """All transfers are queued before the first is awaited."""
        staged = [self._stage(v) if 0 not in v.shape else None for v in views]
        out: list[Array] = []
        for view, kind, stage in zip(views, kinds, staged, strict=True):
            if stage is None:
                out.append(np.empty(view.shape, kind.dtype))
                continue
            host, semaphore = stage
            semaphore.wait(1)  # a fence's own wait costs milliseconds
            mapped: Array = np.ndarray(view.shape, kind.dtype, host.map())
            out.append(mapped.copy())
            del mapped
            self._staging.give_back(host, view.get_buffer().byte_length())
        return out

    def _stage(self, view: Any) -> tuple[Any, Any]:
        source = view.get_buffer()
        host = self._staging.take(source.byte_length())
        return host, self._queue_copy(source, host)

    def _queue_copy(self, source: Any, to: Any) -> Any:
        """A semaphore that is 1 when `to` has what `source` has."""
        semaphore = self.device.create_semaphore(0)
        start, end = (self._fence.create_at(semaphore, n) for n in (0, 1))
        self.device.queue_copy(source, to, start, end)
        return semaphore


class Staging:
    """Host memory that a GPU writes, kept between calls: CUDA takes 1.2 ms to allocate or free it (H100)."""

    def __init__(self, allocator: Any, limit: int = STAGED_BYTES) -> None:
        rt = bindings.native()
        memory = int(rt.MemoryType.HOST_LOCAL) | int(rt.MemoryType.DEVICE_VISIBLE)
        usage = int(rt.BufferUsage.TRANSFER) | int(rt.BufferUsage.MAPPING_SCOPED)
        self._allocate = partial(allocator.allocate_buffer, memory, usage)
        self._lock, self._limit = threading.Lock(), limit
        self._free: list[tuple[int, Any]] = []  # bytes and buffers, the last used last

    def take(self, size: int) -> Any:
        """A buffer of exactly so many bytes: a copy is one of whole buffers."""
        with self._lock:
            for i in reversed(range(len(self._free))):
                if self._free[i][0] == size:
                    return self._free.pop(i)[1]
        return self._allocate(size)

    def give_back(self, buffer: Any, size: int) -> None:
        """Keep it for later calls; the longest unused ones go where there is too much."""
        with self._lock:
            self._free.append((size, buffer))
            while len(self._free) > 1 and sum(n for n, _ in self._free) > self._limit:
                del self._free[0]
