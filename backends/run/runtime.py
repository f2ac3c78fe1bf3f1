"""IREE's drivers and devices in this process, and its messages as the project's errors."""

from __future__ import annotations

import ctypes
import os
import re
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lstm_ir.backends import bindings, process
from lstm_ir.backends.run import freed_memory
from lstm_ir.backends.run.threads import affinity, stacks
from lstm_ir.backends.run.tuned import SPIN_MICROSECONDS
from lstm_ir.backends.targets import cpus
from lstm_ir.ir.errors import DeviceError, LostDeviceError, LstmIrError, TargetError, ValueRangeError
from lstm_ir.ir.options import is_int

CPU_DRIVERS = ("local-task", "local-sync")
LOST = "DEVICE_LOST"  # what drivers say of a GPU that stopped answering
# IREE's CUDA queue takes no work after one that failed, a launch or a fill of nothing among them.
_CUDA = r"CUDA_ERROR_(?!OUT_OF_MEMORY)|hal\.device\.queue\.dealloca"
MAX_THREADS = 64  # workers that one IREE executor has at most


class _RuntimeState:
    """What is made once per process; a forked child may not use its parent's."""

    def __init__(self, threads: int) -> None:
        self.threads = threads
        self.instance: Any = None
        self.started = False  # the CPU driver has its workers
        self.fixed = False  # an executable counts on so many threads


_lock = threading.RLock()
_process = _RuntimeState(min(cpus.cores(), MAX_THREADS))
_devices: dict[str, Any] = {}
_owners: weakref.WeakSet[Any] = weakref.WeakSet()


def set_threads(n: int) -> None:
    """Workers for CPU executables of this process; only before the first one."""
    if not is_int(n) or not 1 <= n <= MAX_THREADS:
        raise DeviceError(f"set_threads: expected 1 to {MAX_THREADS} threads, got {n!r}")
    n = int(n)
    with _lock:
        if (_process.started or _process.fixed) and n != _process.threads:
            raise DeviceError(
                f"set_threads({n}): the CPU's {_process.threads} workers already run; "
                "call it before the first CPU executable"
            )
        _process.threads = n


def fix_threads() -> None:
    """From now on the number of threads stays."""
    _process.fixed = True


def threads() -> int:
    """Workers that CPU executables use, or will use."""
    return _process.threads


def outlive_fork(owner: object) -> None:
    """`owner` is never freed in a forked child: what it holds of IREE would wait for workers."""
    _owners.add(owner)


def _forked() -> None:
    """In a forked child: one reference too many to all that IREE would tear down.

    Its destructors wait for threads that only the parent has; no exit of the child would end.
    """
    global _lock
    _lock = threading.RLock()  # another thread of the parent may have held it
    if process.forked():
        for kept in (_process.instance, *_devices.values(), *_owners):
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(kept))
        bindings.native().disable_leak_checker()  # prints what is alive at exit


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


def _leave_to_threads() -> None:
    """What daemon threads hold is alive at exit, and the bindings would list it."""
    if _process.instance is not None and threading.active_count() > 1:
        bindings.native().disable_leak_checker()
    freed_memory.leave()


process.at_end(farewell=_leave_to_threads)


def instance() -> Any:
    """The process-wide VM instance."""
    process.check()
    with _lock:
        if _process.instance is None:
            process.runtime_started()
            _process.instance = bindings.native().VmInstance()
        return _process.instance


def device(word: str) -> Any:
    """The HAL device: `local-task`, `vulkan`, `vulkan:1` (by index) or `vulkan://path`."""
    process.check()
    with _lock:
        instance()
        found = _devices.get(word)
        if found is not None:
            return found
        name, colon, _ = word.partition(":")
        driver = _driver(name)
        with reporting(f"device {word}", TargetError):
            if colon and (m := re.fullmatch(r"[a-z-]+:(\d+)", word)) is not None:
                listed = driver.query_available_devices()
                if int(m[1]) >= len(listed):
                    raise TargetError(f"device {word}: this machine has {len(listed)} of them")
                found = driver.create_device(listed[int(m[1])]["device_id"], None)
            elif name in CPU_DRIVERS:
                found = freed_memory.device(driver, word)
            else:
                found = driver.create_device_by_uri(word)
        _devices[word] = found
        return found


def _driver(name: str) -> Any:
    rt = bindings.native()
    known = rt.HalDriver.query()
    if name not in known:
        raise TargetError(f"unknown device {name!r}; the runtime has {', '.join(sorted(known))}")
    if name == "local-task" and not _process.started:
        # The workers belong to the cached driver, so what they are is set before it is made.
        room = f"--task_worker_stack_size={stacks.WORKER}"
        rt.parse_flags(*_topology(_process.threads), f"--task_worker_spin_us={SPIN_MICROSECONDS}", room)
        _process.started = True
    with reporting(f"no {name} device here", TargetError):
        return rt.get_cached_hal_driver(name)


def devices_of(name: str) -> tuple[tuple[str, ...], str]:
    """Names of the driver's devices, and why there are none."""
    try:
        rt = bindings.native()
    except DeviceError as e:
        return (), str(e)
    if name in CPU_DRIVERS:
        return ("default",), ""  # asking would fix the number of workers
    if name not in rt.HalDriver.query():
        return (), f"this build of the runtime has no {name} driver"
    try:
        listed = _driver(name).query_available_devices()
    except (TargetError, RuntimeError) as e:
        return (), bindings.short(e)
    if not listed:
        return (), f"the {name} driver lists no device"
    return tuple(str(d.get("name") or d.get("path")) for d in listed), ""


def _topology(workers: int) -> tuple[str, ...]:
    """Flags for this many workers; one on each processor where they are all that the process has.

    Linux wakes a worker where it ran last or where its waker runs. Two on one processor took half as
    long again until the scheduler moved one, with every call after a rest (docs/performance.md).
    """
    mine = affinity.processor_each(workers)
    if mine is not None:
        affinity.of_process.first_worker = mine[0]
        return ("--task_topology_cpu_ids=" + ",".join(map(str, mine)),)
    return (f"--task_topology_group_count={workers}",)


def _forget_lost() -> None:
    """GPUs are opened anew for the next executable; those that hold a lost device keep failing."""
    with _lock:
        for word in [w for w in _devices if not w.startswith(CPU_DRIVERS)]:
            del _devices[word]


@contextmanager
def reporting(what: str, error: type[LstmIrError] | None = None) -> Iterator[None]:
    """What the bindings raise within becomes an `error`, or what `failure` makes of it."""
    try:
        yield
    except bindings.RAISED as e:
        if type(e) not in bindings.RAISED:
            raise  # ours, or a signal handler's
        raise (failure(e, what) if error is None else error(f"{what}: {bindings.short(e)}")) from e


EMPTY = "empty buffer range"  # Vulkan's driver, of a size of 0 that no variant of the module has


def failure(error: BaseException, what: str) -> LstmIrError:
    """The project's error for one that the runtime raised while it ran `what`."""
    text = str(error)
    if LOST in text or re.search(_CUDA, text):
        _forget_lost()
        return LostDeviceError(f"{what}: the device was lost; compile or load again ({bindings.short(error)})")
    if EMPTY in text:
        why = "a tensor without elements, whose size is computed or has a name, meets a dispatch: Vulkan refuses it"
        return DeviceError(f"{what}: {why}; make this call on a CPU ({bindings.short(error)})")
    found = re.search(bindings.STATUS, text)
    # An assertion of the module itself has no place in the runtime's sources before it.
    if found is not None and found[1] == "FAILED_PRECONDITION":
        if ".c:" not in text[: found.start()]:
            return ValueRangeError(f"{what}: {bindings.short(error)}")
    return DeviceError(f"{what}: {bindings.short(error)}" + (f" ({found[1]})" if found is not None else ""))
