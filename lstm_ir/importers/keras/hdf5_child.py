"""Reads an HDF5 file in a process of its own: `python hdf5_child.py FILE OUTPUT MEMORY SECONDS`.

Writes a .npz of all arrays and of an index in JSON: names of the arrays, attributes of the groups. Links, data in
other files, and arrays that claim far more than the file holds are refused. Imports nothing of the project.
"""

from __future__ import annotations

import json
import math
import sys
from typing import Any

MAX_OBJECTS = 50_000
MAX_BYTES = 4 << 30  # of all arrays
MAX_EXPANSION = 100  # times the bytes in the file
MAX_DEPTH = 64


def main(path: str, output: str, memory: str, seconds: str) -> None:
    """Read one file."""
    _limit(int(memory), int(seconds))
    try:
        import h5py
        import numpy as np  # after the limit is set
    except ModuleNotFoundError:
        sys.exit(3)
    arrays: dict[str, Any] = {}
    attributes: dict[str, dict[str, Any]] = {}
    with h5py.File(path, "r") as f:
        _walk(f, "", h5py, arrays, attributes, {h5py.h5o.get_info(f.id).addr}, [0], 0)
        index = {"arrays": list(arrays), "attributes": attributes}
        text = np.frombuffer(json.dumps(index).encode(), np.uint8)
        np.savez(output, index=text, **{f"a{k}": a for k, a in enumerate(arrays.values())})


def _limit(memory: int, seconds: int) -> None:
    try:
        import resource  # not on Windows
    except ImportError:  # no limits there: the parent's time limit is left
        return
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def _walk(
    group: Any, path: str, h5py: Any, arrays: dict[str, Any], attributes: dict[str, Any], seen: set[int],
    taken: list[int], depth: int,
) -> None:  # fmt: skip
    if depth > MAX_DEPTH or len(arrays) + len(attributes) > MAX_OBJECTS:
        sys.exit("groups are nested too deeply, or there are too many")
    attributes[path] = {name: _attribute(group, name) for name in group.attrs}
    for name in group:
        where = f"{path}/{name}".lstrip("/")
        link = group.get(name, getlink=True)
        if not isinstance(link, h5py.HardLink):
            sys.exit(f"{where} is a {type(link).__name__}; links are not followed")
        thing = group[name]
        place = h5py.h5o.get_info(thing.id).addr
        if place in seen:
            sys.exit(f"{where} stands in two places, or in itself")
        seen.add(place)
        if isinstance(thing, h5py.Group):
            _walk(thing, where, h5py, arrays, attributes, seen, taken, depth + 1)
        elif isinstance(thing, h5py.Dataset):
            arrays[where] = _array(thing, where, taken)
            taken[0] += arrays[where].nbytes
        else:
            sys.exit(f"{where} is a {type(thing).__name__}, not an array")


def _array(d: Any, where: str, taken: list[int]) -> Any:
    if d.external or d.is_virtual:
        sys.exit(f"{where} has its data in another file")
    if d.dtype.kind not in "fiub" and str(d.dtype) != "bfloat16":
        if d.dtype.kind in "OSV" and d.shape == ():  # a word beside the weights
            return _word(d)
        sys.exit(f"{where} has {d.dtype} elements, not numbers")
    claimed = math.prod(d.shape or ()) * d.dtype.itemsize
    stored = d.id.get_storage_size()
    if claimed > MAX_EXPANSION * max(stored, 1) and claimed > 1 << 16:
        sys.exit(f"{where} claims {claimed} bytes and holds {stored}")
    if taken[0] + claimed > MAX_BYTES:
        sys.exit(f"its arrays have more than {MAX_BYTES} bytes")
    return d[()]


def _word(d: Any) -> Any:
    import numpy as np  # after the limit is set

    return np.zeros(0, np.uint8)


def _attribute(group: Any, name: str) -> Any:
    value = group.attrs[name]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, list):
        return [v.decode(errors="replace") if isinstance(v, bytes) else v for v in value]
    return value if isinstance(value, (str, int, float, bool)) else None


if __name__ == "__main__":
    main(*sys.argv[1:])
