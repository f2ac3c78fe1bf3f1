"""What a package holds: versions, modules and whether they run here, entries, weights, state, the graph."""

from __future__ import annotations

from collections.abc import Iterator

from lstm_ir.backends.files.archive import Package
from lstm_ir.backends.run.package import other_release, stored_module, why_not
from lstm_ir.ir.errors import LstmIrError
from lstm_ir.ir.printable import bytes_text
from lstm_ir.ir.signature import Entry
from lstm_ir.verification.result import table


def lines(package: Package) -> Iterator[str]:
    """The package in words; nothing of it is loaded or compiled."""
    m = package.manifest
    yield f"{package.path}: {package.signature.name}, {bytes_text(package.path.stat().st_size)}, {_signature(package)}"
    release = other_release(package)
    yield f"format {m.version}, by lstm-ir {m.lstm_ir} and IREE {m.iree}"
    if release is not None:
        yield release
    yield ""
    best = _best(package) if release is None else None
    rows = [("module", "size", "")]
    for t in package.targets:
        why = why_not(t) if release is None else "another IREE"
        runs = "runs here" if why is None else f"does not run here: {why}"
        taken = ", taken where no device is asked for" if t.info.name == best else ""
        rows.append((t.info.name, bytes_text(m.members[t.file].size), f"{runs}{taken}"))
    yield from table(rows)
    yield ""
    for entry in package.signature.entries.values():
        yield f"entry {entry.name}{_call(entry)}"
    weights = package.weights
    yield f"weights {len(weights)}, {bytes_text(sum(a.nbytes for a in weights.values()))}"
    for name, variable in package.signature.state.items():
        yield f"state {name}: {variable.type}"
    recipe = m.recipe
    if recipe is None:
        yield "graph none: the package runs, and cannot be compiled again"
    else:
        options = "".join(f", {name}={value}" for name, value in recipe.options.items())
        yield f"graph compiled for {', '.join(recipe.targets)}{options}"


def _signature(package: Package) -> str:
    """Whose key signed it, as far as that is known."""
    if package.signed:
        return "signed with this key"
    return "with a signature that was not checked (--key-file checks it)" if package.sealed else "not signed"


def _call(entry: Entry) -> str:
    """What the entry takes, gives and keeps."""
    takes, gives = (", ".join(map(str, ports)) for ports in (entry.inputs, entry.outputs))
    kept = [f"{word} {', '.join(names)}" for word, names in (("reads", entry.reads), ("writes", entry.writes)) if names]
    return "; ".join([f"({takes}) -> ({gives})", *kept])


def _best(package: Package) -> str | None:
    try:
        return stored_module(package).info.name
    except LstmIrError:  # none runs here
        return None
