"""Ray Data with `lstm_ir.ray.Predictor`: actors of their own processes. Ray takes seconds to start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import local_ray
import numpy as np
import pytest
from memory_maps import kilobytes
from served_models import H, I, encoder
from told_predictor import Told

import lstm_ir as li
from lstm_ir.ray import Predictor

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("ray"), pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    with local_ray.running(4) as running:
        yield running


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return encoder(tmp_path_factory.mktemp("ray"))


def test_map_batches(ray: Any, package: Path, rng: np.random.Generator) -> None:
    """Rows of unequal steps through actors: as the package gives them one by one, here."""
    from ray.data import from_items

    steps = [int(t) for t in rng.integers(1, 20, 60)]
    rows = [rng.standard_normal((t, I), np.float32) for t in steps]
    ds = from_items([{"id": i, "frames": a} for i, a in enumerate(rows)])
    out = ds.map_batches(
        Told, fn_constructor_args=[str(package)],
        fn_constructor_kwargs={"inputs": {"x": "frames"}, "outputs": {"scores": "s", "y": "y"}, "keep": ["id"]},
        batch_size=16, concurrency=2, num_cpus=2,
    )  # fmt: skip
    found = out.take_all()
    assert sorted(r["id"] for r in found) == list(range(60))
    exe = li.load(package)
    for r in found:
        a = rows[r["id"]]
        want = exe(x=a[:, None], lengths=np.array([len(a)], np.int32))
        np.testing.assert_allclose(r["s"], want["scores"][0], atol=2e-5)
        assert r["y"].shape == (len(a), H)
        np.testing.assert_allclose(r["y"], want["y"][:, 0], atol=2e-5)
    assert {int(r["threads"]) for r in found} == {2}  # the share of each actor
    assert os.getpid() not in {int(r["pid"]) for r in found}


@pytest.mark.parametrize(("cpus", "threads"), [(1, 1), (3, 3), (0.5, 1), (0, 1)])
def test_threads_are_the_actors_share(ray: Any, package: Path, cpus: float, threads: int) -> None:
    actor = ray.remote(num_cpus=cpus)(Told).remote(str(package))
    x = np.ones((2, 3, I), np.float32)
    found = ray.get(actor.__call__.remote({"x": x}))
    assert found["y"].shape == (2, 3, H)
    assert found["threads"].tolist() == [threads, threads]
    ray.kill(actor)


def test_the_driver_keeps_its_threads(ray: Any, package: Path) -> None:
    from lstm_ir.backends.run import runtime

    before = runtime.threads()
    assert Predictor(package).threads == before


def test_a_predictor_in_a_task_is_pickled_by_its_path(ray: Any, package: Path) -> None:
    made = Predictor(package)

    @ray.remote(num_cpus=1)  # type: ignore[untyped-decorator]
    def call(p: Predictor, x: Any) -> Any:
        return p({"x": x})["scores"]

    x = np.ones((3, 4, I), np.float32)
    np.testing.assert_allclose(ray.get(call.remote(made, x)), made({"x": x})["scores"], atol=2e-5)


def test_actors_share_the_pages_of_the_weights(ray: Any, tmp_path: Path, rng: np.random.Generator) -> None:
    table = rng.standard_normal((50_000, 128), np.float32)  # 25.6 MB
    ids = li.input("ids", ("B", 1), "i32")
    graph = li.Graph("table", [ids], {"rows": li.embedding(li.weight("table", table), ids)})
    path = li.export(graph, tmp_path / "shared.lirpkg", ["cpu:host"])

    actors = [ray.remote(num_cpus=1)(Told).remote(str(path)) for _ in range(3)]
    chosen = np.arange(0, 50_000, 7, dtype=np.int32).reshape(-1, 1)
    found = [ray.get(a.__call__.remote({"ids": chosen})) for a in actors]
    assert len({int(f["pid"][0]) for f in found}) == 3
    for f in found:
        np.testing.assert_array_equal(f["rows"][:, 0], table[chosen[:, 0]])
        held = kilobytes(int(f["pid"][0]), "shared.lirpkg")
        assert held["Rss"] >= table.nbytes // 1024
        assert held["Pss"] < 0.4 * table.nbytes / 1024
        assert held["Private_Dirty"] == 0
    for a in actors:
        ray.kill(a)


def test_a_bad_column_is_named_through_ray(ray: Any, package: Path) -> None:
    actor = ray.remote(num_cpus=1)(Predictor).remote(str(package))
    with pytest.raises(li.CallError, match="column 'x': expected f32"):
        ray.get(actor.__call__.remote({"x": np.zeros((2, 3, I))}))
    ray.kill(actor)
