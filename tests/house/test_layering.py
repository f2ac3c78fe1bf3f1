"""Who may import whom, what an import may drag along, and what the tree may not contain."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import networkx as nx
import pytest
from paths import ROOT, files
from syntax import parsed

pytestmark = pytest.mark.xdist_group("syntax")

FOREIGN = ("torch", "tensorflow", "jax", "jaxlib", "onnx", "onnx_ir", "onnxruntime", "keras", "safetensors")
LAZY = ("networkx", "lark", "iree.compiler", "ml_dtypes", "click", "rich")
OURS = ("lstm_ir.api", "lstm_ir.ops", "lstm_ir.ir.graph", "lstm_ir.ir.types", "lstm_ir.passes", "lstm_ir.backends")
LIMIT = 500  # lines of one file
IR = "lstm_ir.ir"
# Room: the rooms that its files may import, at their tops, in functions and for annotations. A room is a folder or a
# file; of two that hold a module the inner one is its room. What a room imports stands above it.
ARROWS = {
    "backends": "",
    "backends.kernels": "",
    "data": "",
    "ir": "",
    "backends.bindings": "ir",
    "backends.emit": "ir",
    "backends.memory": "ir",
    "backends.process": "ir",
    "backends.compile": "ir backends.process",
    "backends.queue": "backends.memory",
    "backends.run.threads": "ir",
    "backends.targets": "ir backends.compile",
    "backends.files": "ir backends.bindings backends.memory backends.compile backends.targets",
    "compile_advice": "ir backends.compile",
    "measurement": "",
    "ops.by_name": "ir",
    "ops.primitive": "ir",
    "ops.scan": "ir ops.primitive",
    "ops.core": "ir ops.primitive ops.scan",
    "ops.mps": "ir ops.primitive ops.core",
    "ops.nn": "ir ops.primitive ops.scan ops.core",
    "ops.cudnn": "ir ops.primitive ops.nn",
    "ops.tf": "ir ops.primitive",
    "ops": "ir ops.primitive ops.scan ops.core ops.mps ops.nn ops.cudnn ops.tf",
    "backends.kernels.body": "ir ops.primitive ops.scan ops",
    "backends.kernels.text": "ir backends.emit backends.kernels.body",
    "backends.kernels.helpers": "backends.memory backends.queue backends.kernels.text",
    "backends.kernels.call": (
        "ir backends.emit ops.primitive ops backends.kernels.body backends.kernels.text backends.kernels.helpers"
    ),
    "backends.kernels.cpu": (
        "ir backends.emit backends.memory ops.primitive ops backends.kernels.body backends.kernels.text "
        "backends.kernels.call"
    ),
    "backends.kernels.gpu": (
        "ir backends.emit backends.kernels.body backends.kernels.text backends.kernels.call backends.kernels.cpu"
    ),
    "backends.kernels.lowering": ("ir backends.emit backends.kernels.body backends.kernels.cpu backends.kernels.gpu"),
    "backends.lower": "ir backends.emit ops.primitive backends.kernels.lowering",
    "backends.module": (
        "ir backends.emit backends.process backends.compile backends.files backends.kernels.text "
        "backends.kernels.helpers backends.kernels.call backends.kernels.cpu backends.lower"
    ),
    "options": "ir backends.emit",
    "passes": "ir ops.primitive ops.scan ops.core ops.nn ops",
    "streaming": "ir ops.primitive ops.scan ops.core",
    "importers": "ir ops.by_name ops.primitive ops.core ops.nn ops streaming",
    "training": "ir backends.files ops.primitive ops.nn ops",
    "unpacking": "ir backends.files options",
    "view": "ir",
    "backends.run": (
        "ir backends.bindings backends.memory backends.process backends.compile backends.queue backends.run.threads "
        "backends.targets backends.files view"
    ),
    "api": (
        "ir backends.emit backends.compile backends.run.threads backends.targets backends.files compile_advice "
        "backends.kernels.body backends.module options passes backends.run"
    ),
    "demo": "data ir backends.run api",
    "fitting": "ir backends.files measurement backends.run api",
    "loading": "ir backends.files options unpacking backends.run",
    "verification": "ir backends.targets measurement ops importers training backends.run api",
    "serving": "ir backends.process backends.files backends.run verification",
    "lstm_ir": "ir ops.by_name streaming importers training api fitting loading verification serving",
    "bench": "ir backends.compile measurement passes backends.run loading lstm_ir",
    "cli": (
        "ir backends.queue backends.targets backends.files measurement passes importers unpacking view backends.run "
        "api demo loading verification serving bench"
    ),
    "__main__": "cli",
    "parallel": "ir backends.memory backends.targets backends.files backends.run loading serving",
    "ray": "ir backends.run loading serving parallel",
}


SOURCES = [*files("lstm_ir"), *files("passes"), *files("backends")]


@cache
def imports(path: Path) -> tuple[tuple[str, bool], ...]:
    """Every imported module, and whether the import runs when the file is imported."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[tuple[str, bool]]:
    tree = parsed(path)
    inner = {
        id(n)
        for f in ast.walk(tree)
        if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)) or _typing_only(f)
        for n in ast.walk(f)
    }
    for n in ast.walk(tree):
        if isinstance(n, ast.Import):
            yield from ((a.name, id(n) not in inner) for a in n.names)
        elif isinstance(n, ast.ImportFrom):
            assert n.level == 0, f"{path}:{n.lineno}: relative import"
            module = str(n.module)
            yield module, id(n) not in inner
            yield from ((f"{module}.{a.name}", id(n) not in inner) for a in n.names)


def _typing_only(n: ast.AST) -> bool:
    return isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"


def within(name: str, *packages: str) -> bool:
    return any(name == p or name.startswith(p + ".") for p in packages)


def module(path: Path) -> str:
    """The name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts if parts[0] == "lstm_ir" else ("lstm_ir", *parts))


def room_of(name: str) -> str:
    """The room of the table that a module stands in; the face of the package is one of its own."""
    inner = name.removeprefix("lstm_ir.")
    return max((r for r in ARROWS if within(inner, r)), key=len, default="")


def ours(path: Path) -> Iterator[str]:
    """The project's modules that a file imports; a name taken from a package is one of them, or the package's own."""
    names = {name for name, _ in imports(path) if within(name, "lstm_ir")} & MODULES
    packages = {n.rpartition(".")[0] for n in names}
    yield from names - packages


MODULES = {module(p).removesuffix(".__init__") for p in SOURCES}


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_a_file_imports_the_rooms_below_its_own(path: Path) -> None:
    room = room_of(module(path).removesuffix(".__init__"))
    assert room, f"{path} stands in no room of the table"
    for name in ours(path):
        assert room_of(name) in (room, *ARROWS[room].split()), f"{path} imports {name}"
    for name, _ in imports(path):
        assert not within(name, "passes", "backends"), f"{path} imports {name} without its package"


def top_names(path: Path) -> set[str]:
    """Names that a file has at its top: of its functions, classes, variables and imports."""
    tree = parsed(path)
    blocks = [n for n in tree.body if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))]
    inner = {id(n) for block in blocks for n in ast.walk(block)}
    names = {block.name for block in blocks}
    for n in ast.walk(tree):
        if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store) and id(n) not in inner:
            names.add(n.id)
        elif isinstance(n, ast.ImportFrom) and n.names[0].name == "*":
            names |= set(importlib.import_module(str(n.module)).__all__)
        elif isinstance(n, ast.alias):
            names.add(n.asname or n.name)
    return names


def test_scripts_and_tests_import_what_is_there() -> None:
    """Most of them run in a part of the tests alone: a renamed module or name would be found late."""
    places = {module(p).removesuffix(".__init__"): p for p in SOURCES}
    tops = {name: top_names(path) for name, path in places.items()}
    for path in (*files("benchmarks"), *files("examples"), *files("tests"), *SOURCES):
        for n in ast.walk(parsed(path)):
            if isinstance(n, ast.ImportFrom) and within(str(n.module), "lstm_ir"):
                assert n.module in places, f"{path}:{n.lineno} imports {n.module}"
                for a in (a for a in n.names if a.name != "*"):
                    inside = a.name in tops[n.module] or f"{n.module}.{a.name}" in places
                    assert inside, f"{path}:{n.lineno} imports {a.name} from {n.module}"


def test_the_table_has_no_circle_of_rooms_and_no_needless_arrow() -> None:
    arrows = {(room, other) for room, others in ARROWS.items() for other in others.split()}
    assert {other for _, other in arrows} <= set(ARROWS)
    places = {room: k for k, room in enumerate(ARROWS)}
    upwards = [(room, other) for room, other in arrows if places[other] >= places[room]]
    assert not upwards
    used = {(room_of(module(p).removesuffix(".__init__")), room_of(name)) for p in SOURCES for name in ours(p)}
    assert not arrows - used, "take it out of the table"


# Imports that may close a circle, with the reason: no file needs them when it runs.
ANNOTATIONS = {
    (f"{IR}.opdef", f"{IR}.graph"): "an op's rules take nodes and values, a node has its op",
    (f"{IR}.operators", f"{IR}.graph"): "the operators of values give values",
    (f"{IR}.printer", f"{IR}.graph"): "a graph prints itself",
    (f"{IR}.printer", f"{IR}.program"): "a program prints itself",
}


def imported_files() -> nx.DiGraph:
    """Which file imports which, at its top, in a function or for annotations."""
    names = {module(p).removesuffix(".__init__"): p for p in SOURCES}
    made = nx.DiGraph()
    for name, path in names.items():
        found = {other for other, _ in imports(path)}
        held = {f.rpartition(".")[0] for f in found & set(names)}  # packages that a file was taken from
        made.add_edges_from((name, other) for other in found & set(names) if other not in held)
    return made


def test_no_circle_of_files() -> None:
    """Imports inside functions count: they hide a circle, and do not take it apart."""
    graph = imported_files()
    assert graph.number_of_edges() > 1000
    in_circles = {e for c in nx.strongly_connected_components(graph) for e in graph.subgraph(c).edges}
    needless = set(ANNOTATIONS) - in_circles
    assert not needless, f"no circle goes through {needless}: take it out of the list"
    graph.remove_edges_from(ANNOTATIONS)
    circles = [sorted(c) for c in nx.strongly_connected_components(graph) if len(c) > 1]
    assert not circles, "\n".join(f"{a} imports {b}" for c in circles for a, b in graph.subgraph(c).edges)


@pytest.mark.parametrize(("name", "other"), ANNOTATIONS)
def test_annotations_alone_name_what_closes_a_circle(name: str, other: str) -> None:
    (path,) = (p for p in SOURCES if module(p) == name)
    tree = parsed(path)
    typing = {id(n) for block in ast.walk(tree) if _typing_only(block) for n in ast.walk(block)}
    found = [n for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) and n.module == other]
    assert found
    assert all(id(n) in typing for n in found)


# Where an import inside a function needs no reason on its line: there laziness is the point.
LAZY_ROOMS = {
    "api": "the driver imports a stage when it is reached",
    "loading": "`li.load` imports neither graphs nor the compiler",
    "options": "checked before anything is imported",
    "cli": "a verb imports what it runs",
    "bench": "flags are set before a library is imported",
    "verification.verify": "`li.verify` imports what its arguments need",
    "importers.kinds": "an importer comes with the first model of its kind",
    "importers.torch": "PyTorch comes with a call",
}
HEAVY = (*FOREIGN, "google", "h5py", "iree", "lark", "ml_dtypes", "networkx", "prometheus_client", "ray", "rich")


def inner_imports(path: Path) -> Iterator[tuple[int, str, str]]:
    """Of functions: line, what is imported first, and the line's text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    for f in ast.walk(parsed(path)):
        if isinstance(f, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for n in ast.walk(f):
                if isinstance(n, (ast.Import, ast.ImportFrom)):
                    name = str(n.module) if isinstance(n, ast.ImportFrom) else n.names[0].name
                    yield n.lineno, name, lines[n.lineno - 1]


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_an_import_in_a_function_has_a_reason(path: Path) -> None:
    if within(module(path), *(f"lstm_ir.{r}" for r in LAZY_ROOMS)):
        return
    for number, name, line in inner_imports(path):
        assert within(name, *HEAVY) or "  # " in line, f"{path}:{number}: say why {name} is imported here, or lift it"


@pytest.mark.parametrize("path", files("backends/kernels/body"), ids=lambda p: p.name)
def test_what_a_body_computes_knows_no_processor(path: Path) -> None:
    for name, _ in imports(path):
        inside = within(name, "lstm_ir.backends.kernels.body", "lstm_ir.ir", "lstm_ir.ops")
        assert inside or not within(name, "lstm_ir.backends", "iree"), f"{path} imports {name}"


# Files that `from_torch` imports when it is called: classes of PyTorch are their base classes and operands.
OVER_TORCH = [
    ROOT / "lstm_ir" / "importers" / "torch" / f"{n}.py"
    for n in ("assumptions", "exporting", "functional", "interception", "interface", "names", "places", "program",
              "replay", "walk", "whole_ops")
]  # fmt: skip


def test_pytorch_comes_with_a_call_alone() -> None:
    """No file but those over PyTorch imports one of them at its top."""
    over = {module(p) for p in OVER_TORCH}
    for path in set(SOURCES) - set(OVER_TORCH):
        for name, at_import in imports(path):
            assert not (at_import and name in over), f"{path} imports {name} at import time"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_frameworks_are_imported_by_importers_only(path: Path) -> None:
    for name, at_import in imports(path):
        if within(name, "torch") and path in OVER_TORCH:
            continue
        if within(name, *FOREIGN):
            assert not at_import, f"{path} imports {name} at import time"
            room = path.relative_to(ROOT).parts[1]
            allowed = room in ("bench", "importers") or path.name.startswith("oracle")
            assert allowed, f"{path} imports {name}"


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_files_are_small(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= LIMIT


def test_no_module_hides_a_public_name() -> None:
    names = [".".join(("lstm_ir", *p.relative_to(ROOT / "lstm_ir").with_suffix("").parts))
             for p in files("lstm_ir") if p.name not in ("__main__.py", "__init__.py")]  # fmt: skip
    code = (
        f"import sys, types, importlib; sys.path.insert(0, {str(ROOT)!r}); import lstm_ir as li\n"
        f"for m in {names!r}:\n"
        "    try: importlib.import_module(m)\n"
        "    except ModuleNotFoundError as e: assert not e.name.startswith('lstm_ir'), m  # a library of an extra\n"
        "print([n for n in li.__all__ if isinstance(getattr(li, n), types.ModuleType)])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_python_started_in_a_checkout_finds_all_layers(tmp_path: Path) -> None:
    """Without the finder of an editable install, as beside a copy that pip installed."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "sys.meta_path = [f for f in sys.meta_path if 'editable' not in repr(f).lower()]\n"
        "import lstm_ir as li, lstm_ir.passes, lstm_ir.backends.kernels\n"
        "x = li.input('x', (3,)); print(str(li.lower(li.Graph('g', [x], {'y': x + x}))).split()[0])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "module"


def test_a_checkout_takes_its_own_folders_where_another_is_installed(tmp_path: Path) -> None:
    """An editable install has a finder that knows where the folders of its own checkout are."""
    for folder in ("passes", "backends"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "__init__.py").write_text("")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from importlib.machinery import PathFinder\n"
        "class Other:\n"
        f"    find_spec = lambda name, *_: PathFinder.find_spec(name, [{str(tmp_path)!r}])\n"
        "sys.meta_path.append(Other)\n"
        "import lstm_ir.passes, lstm_ir.backends.kernels.call.call\n"
        "print(lstm_ir.passes.__file__, lstm_ir.backends.__file__, sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=True)
    want = [f"{ROOT / folder / '__init__.py'}" for folder in ("passes", "backends")]
    assert done.stdout.splitlines() == want


def test_nothing_else_of_a_checkout_is_importable(tmp_path: Path) -> None:
    """`lstm_ir.tests` is no module, wherever python starts."""
    names = [p.stem for p in sorted(ROOT.iterdir()) if p.suffix in ("", ".py") and p.stem[0] != "."]
    assert {"tests", "docs", "benchmarks", "backends"} <= set(names)
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r})\n"
        "from importlib.util import find_spec\n"
        f"import lstm_ir; print(list(lstm_ir.__path__) == [{str(ROOT / 'lstm_ir')!r}])\n"
        f"print([n for n in {names!r} if find_spec('lstm_ir.' + n)])"
    )
    for folder in (tmp_path, ROOT):
        done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
        assert done.stdout.splitlines() == ["True", "['backends', 'passes']"]


def test_no_drawer_for_everything() -> None:
    names = {p.stem for p in SOURCES}
    assert not names & {"utils", "util", "common", "helpers", "misc"}


@pytest.mark.parametrize("folder", ["passes", "backends"])
def test_bare_names_are_refused(folder: str) -> None:
    code = f"import sys; sys.path.insert(0, {str(ROOT)!r}); import {folder}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert f"import lstm_ir.{folder}, not {folder}" in done.stderr


def test_importing_the_package_is_light() -> None:
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lstm_ir\n"
        f"print([m for m in {[*LAZY, *FOREIGN, *OURS, 'iree.runtime', 'numpy']!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_batchers_and_sessions_need_no_server() -> None:
    web = ("starlette", "uvicorn", "websockets", "prometheus_client")
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT)!r}); import lstm_ir as li; li.Batcher; li.Sessions\n"
        f"print([m for m in {[*web, *LAZY, *FOREIGN]!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
