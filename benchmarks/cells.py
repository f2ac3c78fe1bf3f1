"""The cells of examples/cells/ beside jax.jit over lax.scan and torch: eager, and compiled over torch's scan operator.

    pip install 'lstm-ir[oracles]'
    python benchmarks/cells.py -o docs/cells/measured.json
    python benchmarks/cells.py --cell min_gru --cell slstm --point 200,8,128 --mode inference --limit 120
    python benchmarks/cells.py --ready -o docs/cells/measured.json      # seconds until ours is ready, alone

Points are T,B,H; x has H columns too. A training step is the gradient of sum(y^2) by all weights, which change from
call to call. Runners take turns (lstm_ir.measurement.side_by_side); results are compared before: a peer that differs is
left out where another one agrees with ours, else the point is. A runner that is not ready after `--limit` seconds is
left out, and named. Sizes are numbers for all. With `-o` the figures of this run take the place of those in the file
that have the same cell, point and mode. With `--device cuda` torch runs there too; JAX runs on the device that it
chooses itself.
"""

import json
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

import lstm_ir as li
from lstm_ir.bench.measure import APART, DifferentError, confirm
from lstm_ir.cli.files import OutputFile
from lstm_ir.measurement.differences import largest, relative
from lstm_ir.measurement.machine import cores, machine
from lstm_ir.measurement.side_by_side import OURS, Times, interleaved

sys.path.extend(str(Path(__file__).parent.parent / "tests" / room) for room in ("machine", "graphs", "oracles"))
import cell_gallery as gallery
from cell_libraries import of_jax, of_torch, scan_operator
from cell_references import CELLS

POINTS = ("200,8,128", "1000,1,128", "100,32,256")
MODES = ("inference", "training step")
JAX, EAGER, COMPILED = PEERS = ("jax.jit", "torch", "torch.compile")
Arrays = dict[str, Any]


class Call(NamedTuple):
    """One call's inputs, and which of the two sets of weights a training step uses."""

    given: Arrays
    turn: int


class Runner(NamedTuple):
    """`run` is timed; `read` turns what it gave into arrays by name."""

    run: Callable[[Call], Any]
    read: Callable[[Any], Arrays]


class Point(NamedTuple):
    """A cell at sizes."""

    cell: str
    T: int
    B: int
    H: int
    training: bool
    device: str = "cpu"

    def graph(self) -> li.Graph:
        """What is compiled."""
        if not self.training:
            return gallery.cell(self.cell).build(self.T, self.B, self.H, self.H)
        graph = gallery.weights_given(self.cell, self.T, self.B, self.H, self.H)
        return gallery.step(graph, [n for n in graph.input_names if n in self.weights()[0]])

    def weights(self) -> list[Arrays]:
        """Two sets."""
        made = gallery.cell(self.cell).weights
        return [{k: np.asarray(a, "f4") for k, a in made(self.H, self.H, seed).items()} for seed in (0, 1)]

    def calls(self, count: int = 4) -> list[Call]:
        """Inputs, the same ones for every runner."""
        graph = gallery.cell(self.cell).build(self.T, self.B, self.H, self.H)
        return [Call(gallery.inputs(graph, self.T, self.B, seed), seed % 2) for seed in range(count)]


def ours(point: Point) -> Runner:
    """This project with default options; nothing comes from its cache."""
    exe, sets = li.compile(point.graph(), point.device, options={"cache": False}), point.weights()
    if not point.training:
        return Runner(lambda call: exe(call.given), lambda out: {"y": out["y"]})
    return Runner(lambda call: exe({**call.given, **sets[call.turn]}), lambda out: out)


def jax_jit(point: Point) -> Runner:
    """lax.scan under jit; weights stay on the device."""
    import jax

    library, reference = of_jax(), CELLS[point.cell]
    held = jax.device_put(point.weights())
    if not point.training:
        infer = jax.jit(lambda w, given: reference(library, given, w))
        return Runner(lambda call: jax.device_get(infer(held[0], call.given)), lambda y: {"y": y})
    step = jax.jit(jax.value_and_grad(lambda w, given: (reference(library, given, w) ** 2).sum()))

    def read(out: Any) -> Arrays:
        return {"loss": out[0]} | {f"d_{k}": a for k, a in out[1].items()}

    return Runner(lambda call: jax.device_get(step(held[call.turn], call.given)), read)


def torch_eager(point: Point, compiled: bool = False) -> Runner:
    """A loop of Python; compiled: the scan operator under torch.compile."""
    import torch

    torch.set_num_threads(cores())
    device = "cuda" if point.device.partition(":")[0] == "cuda" else "cpu"
    torch.set_default_device(device)
    library, reference = of_torch(scan_operator) if compiled else of_torch(), CELLS[point.cell]
    sets = [{k: torch.tensor(a).requires_grad_(point.training) for k, a in w.items()} for w in point.weights()]

    def here(given: Arrays) -> Any:
        return {k: torch.from_numpy(a).to(device) for k, a in given.items()}

    def model(given: Any, w: Any) -> Any:
        return reference(library, given, w)

    if compiled:
        torch._dynamo.reset()
        model = torch.compile(model, fullgraph=True)

    def infer(call: Call) -> Any:
        with torch.no_grad():
            return model(here(call.given), sets[0]).cpu()

    def step(call: Call) -> Any:
        w = sets[call.turn]
        y = model(here(call.given), w)
        loss = (y * y).sum()
        gradients = torch.autograd.grad(loss, list(w.values()))
        return loss.detach().cpu(), {k: g.cpu() for k, g in zip(w, gradients, strict=True)}

    def read(out: Any) -> Arrays:
        return {"loss": out[0].numpy()} | {f"d_{k}": a.numpy() for k, a in out[1].items()}

    return Runner(step, read) if point.training else Runner(infer, lambda y: {"y": y.numpy()})


def torch_compiled(point: Point) -> Runner:
    return torch_eager(point, compiled=True)


MAKERS = {OURS: ours, JAX: jax_jit, EAGER: torch_eager, COMPILED: torch_compiled}


@contextmanager
def limited(seconds: float) -> Iterator[None]:
    """TimeoutError after so long. A compiler in C++ is not interrupted; it counts when it has returned."""

    def over(*_: Any) -> None:
        raise TimeoutError(f"not ready after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, over)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def measure(point: Point, runners: tuple[str, ...], seconds: float, turns: int, limit: float) -> dict[str, Any]:
    """Figures of one point."""
    calls, ready, missing, compiled, found = point.calls(), {}, {}, {}, {}
    for name in (OURS, *runners):
        start = time.perf_counter()
        try:
            with limited(limit):
                runner = MAKERS[name](point)
                found[name] = runner.read(runner.run(calls[0]))
        except Exception as problem:  # a peer that does not compile a cell is a result
            if name == OURS:
                raise
            missing[name] = f"{type(problem).__name__}: {(str(problem).strip() or '-').splitlines()[0][:160]}"
            continue
        ready[name], compiled[name] = runner.run, time.perf_counter() - start
    errors = {w: largest(relative(out[k], a) for k, a in found[OURS].items()) for w, out in found.items() if w != OURS}
    others = {w: e for w, e in errors.items() if not e <= APART}
    if len(others) < len(errors):  # a peer that all the rest contradict is left out, and named
        for w, e in others.items():
            missing[w] = f"results are others, by {e:.1g} of the largest"
            del ready[w], errors[w]
    confirm(f"{point.cell} {point.T},{point.B},{point.H} {MODES[point.training]}", errors)
    times = interleaved(ready, calls, seconds, turns) if len(ready) > 1 else Times({})
    return {
        "cell": point.cell, "T": point.T, "B": point.B, "H": point.H, "mode": MODES[point.training],
        "median_ms": {w: 1e3 * times.median(w) for w in times.seconds},
        "spread_ms": {w: 1e3 * times.spread(w) for w in times.seconds},
        "ratio": times.ratio if times.seconds else None, "best": times.best if times.seconds else None,
        "interval": list(times.interval()) if times.seconds else None,
        "ready_seconds": compiled,
        "errors": errors, "missing": missing,
    }  # fmt: skip


def ready_seconds(point: Point) -> float:
    """Until ours has its first results."""
    call = point.calls(1)[0]
    start = time.perf_counter()
    runner = ours(point)
    runner.read(runner.run(call))
    return time.perf_counter() - start


def versions() -> dict[str, str]:
    """Of what is measured; each point has its own, since points of later runs take the place of earlier ones."""
    return {p: version(p) for p in ("lstm-ir", "jax", "torch", "iree-base-compiler")}


def kept(path: Path, device: str) -> dict[str, Any]:
    """What the file has; figures of two machines do not stand in one."""
    about = {"machine": machine(), "device": device}
    if not path.is_file():
        return {**about, "points": []}
    found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for what in ("machine", "device"):
        if found.get(what) != about[what]:
            raise click.ClickException(f"{path} is of {found.get(what)}; this is {about[what]}")
    of_all = found.pop("versions", {})  # older files say them once
    return {**found, "points": [{"versions": of_all, **point} for point in found["points"]]}


PLACE = ("cell", "T", "B", "H", "mode")


def renew_ready(path: Path, point: Point, seconds: float) -> None:
    """The file with these seconds for ours; all else that it says of the point stays."""
    file = kept(path, point.device)
    place = point.cell, point.T, point.B, point.H, MODES[point.training]
    found = [r for r in file["points"] if tuple(r[k] for k in PLACE) == place]
    if not found:
        raise click.ClickException(f"{path} has no figures of {', '.join(map(str, place))}: measure the point first")
    found[0]["ready_seconds"][OURS] = seconds
    write(path, file)


def write(path: Path, file: dict[str, Any]) -> None:
    """As JSON."""
    path.write_text(json.dumps(file, indent=1) + "\n", encoding="utf-8")


def save(path: Path, device: str, results: list[dict[str, Any]]) -> None:
    """The file with these figures in place of those of the same points."""
    file, here = kept(path, device), versions()
    new = {tuple(r[k] for k in PLACE) for r in results}
    file["points"] = [r for r in file["points"] if tuple(r[k] for k in PLACE) not in new]
    file["points"] += [{**r, "versions": here} for r in results]
    file["points"].sort(key=lambda r: (r["cell"], POINTS.index("{T},{B},{H}".format(**r)), MODES.index(r["mode"])))
    write(path, file)


@click.command()
@click.option("--cell", "cells", multiple=True, type=click.Choice(gallery.NAMES), help="these alone; all if not given")
@click.option("--point", "points", multiple=True, type=click.Choice(POINTS), help="these alone")
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="one of the two alone")
@click.option("--beside", multiple=True, type=click.Choice(PEERS), help="these peers alone")
@click.option("--device", default="cpu", show_default=True, help="what the graphs are compiled for")
@click.option("--seconds", default=2.0, show_default=True, help="spent on each runner of a point")
@click.option("--turns", default=9, show_default=True, help="of each runner at least")
@click.option("--limit", default=600.0, show_default=True, help="seconds until a runner must be ready")
@click.option("--ready", is_flag=True, help="the seconds until ours is ready alone; other figures of the file stay")
@click.option("-o", "--output", type=OutputFile(Path), help="figures as JSON, point by point")
def main(
    cells: tuple[str, ...], points: tuple[str, ...], modes: tuple[str, ...], beside: tuple[str, ...], device: str,
    seconds: float, turns: int, limit: float, ready: bool, output: Path | None,
) -> None:  # fmt: skip
    """Measure cells at points."""
    if output is not None:
        kept(output, device)  # refuses another machine's file before anything is measured
        versions()
    chosen = [
        Point(cell, *map(int, sizes.split(",")), mode == MODES[1], device)
        for cell in cells or gallery.NAMES for sizes in points or POINTS for mode in modes or MODES
    ]  # fmt: skip
    if ready:
        for point in chosen:
            took = ready_seconds(point)
            print(f"{point.cell} {point.T},{point.B},{point.H} {MODES[point.training]}: {took:.2f} s", flush=True)
            if output is not None:
                renew_ready(output, point, took)
        return
    compare(chosen, beside or PEERS, seconds, turns, limit, output)


def compare(
    points: list[Point], peers: tuple[str, ...], seconds: float, turns: int, limit: float, output: Path | None
) -> None:
    """A line for each point."""
    wrong = 0
    print(
        "| cell | T,B,H | mode | "
        + " | ".join(f"{w} ms" for w in MAKERS)
        + " | ratio (90 % interval) | ready s | difference |"
    )
    print("|---|---|---|" + "---|" * len(MAKERS) + "---|---|---|")
    for point in points:
        try:
            r = measure(point, peers, seconds, turns, limit)
        except DifferentError as problem:
            print(f"    left out, {problem}", file=sys.stderr)
            wrong += 1
            continue
        ms = " | ".join(f"{r['median_ms'][w]:.3g}" if w in r["median_ms"] else "-" for w in MAKERS)
        ratio = "-" if r["ratio"] is None else "{:.2f} ({:.2f}-{:.2f})".format(r["ratio"], *r["interval"])
        worst = max(r["errors"].values(), default=float("nan"))
        sizes, ready = f"{point.T},{point.B},{point.H}", r["ready_seconds"][OURS]
        print(f"| {point.cell} | {sizes} | {r['mode']} | {ms} | {ratio} | {ready:.1f} | {worst:.0e} |", flush=True)
        for who, why in r["missing"].items():
            print(f"    {who}: {why}", file=sys.stderr)
        if output is not None:
            save(output, point.device, [r])
    if wrong:
        raise click.ClickException(f"runners differ in the results of {wrong} points, which are left out")


if __name__ == "__main__":
    main()
