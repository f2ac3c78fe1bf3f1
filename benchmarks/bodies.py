"""Loop bodies of kinds that no layer has, beside jax.jit over lax.scan: inference and a training step.

    pip install 'lstm-ir[oracles]'
    python benchmarks/bodies.py
    python benchmarks/bodies.py --body wkv --body top_k --point 200,8,128 --mode inference --seconds 1

Points are T,B,H. A body of tests/oracles/loop_bodies.py is one function that both libraries run. A training step is the
sum of squares of all results that are floats, and its gradients by all weights, which change from call to call; bodies
that draw have inference alone. Noise of draws is an input. Results are compared before anything is measured: floats to
1e-3 of the largest, integers exactly. Ratio: JAX's median by ours.
"""

import sys
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

import click
import numpy as np

import lstm_ir as li
from lstm_ir.measurement.differences import relative
from lstm_ir.measurement.machine import machine
from lstm_ir.measurement.side_by_side import OURS, Times, interleaved

sys.path.append(str(Path(__file__).parent.parent / "tests" / "oracles"))
from loop_bodies import BODIES, Point, of_jax, of_ours

MODES = INFERENCE, TRAINING = ("inference", "training step")
JAX = "jax.jit"
APART = 1e-3  # relative to the largest
Arrays = dict[str, Any]


class Call(NamedTuple):
    """One call's inputs, and which of the two sets of weights a training step uses."""

    given: Arrays
    turn: int


def arrays(words: Mapping[str, str], point: Point, seed: int) -> Arrays:
    """Normal numbers; weights of several axes by the root of the terms of their sums. Noise is Gumbel's."""
    rng, found = np.random.default_rng(seed), {}
    for name, word in words.items():
        shape = point.shape(word)
        by = prod(shape[:-1]) ** -0.5 if name not in ("x", "u", "h0") and len(shape) > 1 else 1.0
        drawn = rng.gumbel(size=shape) if name == "noise" else by * rng.standard_normal(shape)
        found[name] = drawn.astype(np.float32)
    return found


def weights(name: str, point: Point) -> list[Arrays]:
    """Two sets."""
    return [arrays(BODIES[name].weights, point, seed) for seed in (10, 11)]


def calls(name: str, point: Point, count: int = 4) -> list[Call]:
    """Inputs, the same ones for both."""
    return [Call(arrays(BODIES[name].given, point, seed), seed % 2) for seed in range(count)]


def graph(name: str, point: Point, training: bool) -> li.Graph:
    """Ours; in a training step weights are inputs behind the body's own."""
    of = BODIES[name]
    given = {n: li.input(n, point.shape(word)) for n, word in of.given.items()}
    if not training:
        own = {n: li.weight(n, a) for n, a in weights(name, point)[0].items()}
        return li.Graph(name, list(given.values()), of.run(of_ours(), {**given, **own}, point))
    own = {n: li.input(n, point.shape(word)) for n, word in of.weights.items()}
    results = of.run(of_ours(), {**given, **own}, point).values()
    parts = [li.sum(v * v) for v in results if v.dtype.is_float]
    loss = li.Graph(name, [*given.values(), *own.values()], {"loss": sum(parts[1:], parts[0])})
    return li.grad(loss, "loss", list(own))


def ours(name: str, point: Point, training: bool) -> Callable[[Call], Arrays]:
    """With default options; nothing comes from the cache."""
    exe, sets = li.compile(graph(name, point, training), options={"cache": False}), weights(name, point)
    return lambda call: exe({**call.given, **sets[call.turn]} if training else call.given)


def jax_jit(name: str, point: Point, training: bool) -> Callable[[Call], Arrays]:
    """Weights stay on the device."""
    import jax

    lib, run, held = of_jax(), BODIES[name].run, jax.device_put(weights(name, point))

    def loss(w: Arrays, given: Arrays) -> Any:
        return sum((v * v).sum() for v in run(lib, {**given, **w}, point).values() if v.dtype == np.float32)

    def both(w: Arrays, given: Arrays) -> Arrays:
        value, gradients = jax.value_and_grad(loss)(w, given)
        return {"loss": value} | {f"d_{n}": g for n, g in gradients.items()}

    jitted = jax.jit(both if training else lambda w, given: run(lib, {**given, **w}, point))
    return lambda call: jax.device_get(jitted(held[call.turn if training else 0], call.given))


def differing(got: Arrays, want: Arrays) -> list[str]:
    """Names of results that are not equal, and by how much."""
    found = []
    for name, w in want.items():
        g = np.asarray(got[name])
        if w.dtype.kind != "f":
            wrong = np.mean(g != w)
            found += [f"{name} in {wrong:.2%} of the places"] if wrong else []
        elif not (by := relative(g, w)) <= APART:
            found.append(f"{name} by {by:.1g} of the largest")
    return found if got.keys() == want.keys() else ["names of results"]


def measure(name: str, point: Point, mode: str, seconds: float, turns: int) -> Times:
    """Seconds of both; ClickException where results differ."""
    training, given = mode == TRAINING, calls(name, point)
    runs = {OURS: ours(name, point, training), JAX: jax_jit(name, point, training)}
    for call in given:
        if wrong := differing(runs[OURS](call), runs[JAX](call)):
            raise click.ClickException(f"{name} {point} {mode}: results differ: {'; '.join(wrong)}")
    return interleaved(runs, given, seconds, turns)


def sizes(context: click.Context, option: click.Parameter, words: tuple[str, ...]) -> list[Point]:
    """Points of T,B,H."""
    parts = [word.split(",") for word in words]
    if not all(len(p) == 3 and all(n.isdecimal() and int(n) > 0 for n in p) and int(p[2]) % 4 == 0 for p in parts):
        raise click.BadParameter("T,B,H are three whole numbers; H is a multiple of 4", context, option)
    return [Point(*map(int, p)) for p in parts]


@click.command()
@click.option("--body", "names", multiple=True, type=click.Choice(list(BODIES)), help="these alone; all if not given")
@click.option("--point", "points", multiple=True, default=("200,8,128",), show_default=True, callback=sizes)
@click.option("--mode", "modes", multiple=True, type=click.Choice(MODES), help="one of the two alone")
@click.option("--seconds", default=1.0, show_default=True, help="spent on each of the two")
@click.option("--turns", default=9, show_default=True, help="of each at least")
def main(names: tuple[str, ...], points: list[Point], modes: tuple[str, ...], seconds: float, turns: int) -> None:
    """Measure bodies at points."""
    print(f"{machine()}\n\n| body | T,B,H | mode | ours ms | jax ms | ratio |\n|---|---|---|---|---|---|")
    wrong = 0
    for name in names or BODIES:
        for point in points:
            for mode in modes or MODES:
                if mode == TRAINING and not BODIES[name].trains:
                    continue
                try:
                    times = measure(name, point, mode, seconds, turns)
                except (click.ClickException, li.LstmIrError) as problem:
                    print(f"    left out, {getattr(problem, 'message', problem)}", file=sys.stderr)
                    wrong += 1
                    continue
                ms = " | ".join(f"{1e3 * times.median(w):.3g}" for w in (OURS, JAX))
                print(f"| {name} | {point} | {mode} | {ms} | {times.ratio:.2f} |", flush=True)
    if wrong:
        raise click.ClickException(f"{wrong} of the measurements are left out")


if __name__ == "__main__":
    main()
