"""Target words, and what this machine is found to be."""

from __future__ import annotations

import os
from itertools import pairwise
from pathlib import Path

import pytest

from lstm_ir.backends.compile.compiler import compile_mlir
from lstm_ir.backends.kernels.cpu.words import word_product
from lstm_ir.backends.run import devices, runtime
from lstm_ir.backends.targets import cpus, targets
from lstm_ir.ir.errors import TargetError

ADD = """module @m { func.func @main(%a: tensor<?x64xf32>) -> tensor<?x64xf32> {
  %0 = stablehlo.add %a, %a : tensor<?x64xf32>
  return %0 : tensor<?x64xf32> } }"""


def test_this_machine() -> None:
    t = targets.resolve("cpu")
    flags = " ".join(t.flags)
    assert "host" not in flags
    assert "host" not in t.info.name
    assert t.info.cpu
    assert f"target-cpu={t.info.cpu}" in flags
    assert t.drivers == ("local-task", "local-sync")
    assert t.info.kernels
    assert t.info.vector_bits in (128, 256, 512)
    assert t.info.l1_bytes >= 8 << 10
    assert t.info.l2_bytes > t.info.l1_bytes
    assert cpus.missing(t.info.features) == []
    assert cpus.architecture(t.info.triple) == cpus.machine()


@pytest.mark.skipif(cpus.machine() != "x86_64", reason="features of x86-64")
def test_no_feature_this_machine_lacks() -> None:
    have = set(targets.resolve("cpu").info.features)
    implied = set(targets.describe(cpus.host_triple(), targets.resolve("cpu").info.cpu).features)
    assert implied <= have  # the name alone may not bring in what a virtual machine hides


@pytest.mark.skipif(cpus.machine() != "x86_64", reason="features of x86-64")
def test_compiler_and_kernel_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    features = targets.resolve("cpu").info.features
    monkeypatch.setattr(cpus, "_confirmed", set())
    assert cpus.missing(features) == []


def test_a_number_for_a_sum_of_features_needs_the_features() -> None:
    assert "avx10.1" in targets.resolve("cpu:diamondrapids").info.features
    needed = cpus.needed(("avx512f", "avx10.1"))
    assert {"avx512f", "avx512vl", "avx512fp16", "avx512bf16"} <= set(needed)
    assert len(set(needed)) == len(needed)
    assert not [f for f in needed if f.startswith("avx10")]


@pytest.mark.parametrize(
    ("word", "triple", "cpu", "feature"),
    [
        ("cpu:x86-64-v3", "x86_64", "x86-64-v3", "avx2"),
        ("cpu:x86-64-v4", "x86_64", "x86-64-v4", "avx512f"),
        ("cpu:znver4", "x86_64", "znver4", "avx512bf16"),
        ("cpu:aarch64", "aarch64-unknown-linux", "generic", None),
        ("cpu:neoverse-n1", "aarch64-unknown-linux", "neoverse-n1", "dotprod"),
        ("cpu:apple-m1", "arm64-apple-macosx", "apple-m1", "neon"),
        ("cpu:aarch64-apple", "arm64-apple-macosx", "apple-m1", "neon"),
        ("cpu:aarch64-android", "aarch64-linux-android", "generic", None),
        ("cpu:x86-64-android", "x86_64-linux-android", "x86-64-v2", "sse4.2"),
        ("cpu:riscv64", "riscv64-unknown-linux", "generic-rv64", None),
    ],
)
def test_processors(word: str, triple: str, cpu: str, feature: str | None) -> None:
    t = targets.resolve(word)
    assert t.info.triple.startswith(triple)
    assert t.info.cpu == cpu
    assert feature is None or feature in t.info.features
    assert t == targets.resolve(word)


def test_vector_bits() -> None:
    words = ("cpu:x86-64", "cpu:x86-64-v3", "cpu:x86-64-v4", "cpu:aarch64")
    assert [targets.resolve(w).info.vector_bits for w in words] == [128, 256, 512, 128]


def test_what_targets_have() -> None:
    have = {
        w: (i.has_f64, i.has_f16, i.has_bf16, i.kernels, i.assertions_cheap)
        for w in ("cpu", "vulkan", "vulkan:rdna3", "cuda:sm_89", "metal")
        for i in [targets.resolve(w).info]
    }
    assert have == {
        "cpu": (True, True, True, True, True),
        "vulkan": (False, True, False, True, False),
        "vulkan:rdna3": (False, True, False, True, False),
        "cuda:sm_89": (True, True, True, True, False),
        "metal": (False, True, False, False, False),
    }


def test_what_cpu_means_in_a_package() -> None:
    levels = targets.portable("x86_64-unknown-linux-gnu")
    assert [(t.info.cpu, t.info.vector_bits) for t in levels] == [
        ("x86-64-v2", 128), ("x86-64-v3", 256), ("x86-64-v4", 512)
    ]  # fmt: skip
    assert [set(a.info.features) < set(b.info.features) for a, b in pairwise(levels)] == [True, True]
    assert [t.info.cpu for t in targets.portable("aarch64-unknown-linux-gnu")] == ["generic"]


@pytest.mark.parametrize(
    ("triple", "word", "name", "feature", "product"),
    [
        ("x86_64-unknown-linux-gnu", "int8", "cpu:x86-64-v4-vnni", "avx512vnni", "x86.avx512.vpdpbusd.512"),
        ("x86_64-unknown-linux-gnu", "int8-dynamic", "cpu:x86-64-v4-vnni", "avx512vnni", "x86.avx512.vpdpbusd.512"),
        ("aarch64-unknown-linux-gnu", "int8-dynamic", "cpu:aarch64-dotprod", "dotprod",
         "aarch64.neon.sdot.v4i32.v16i8"),
    ],
)  # fmt: skip
def test_a_package_of_int8_has_a_module_with_dot_products(
    triple: str, word: str, name: str, feature: str, product: str
) -> None:
    *levels, last = targets.portable(triple, word)
    assert tuple(levels) == targets.portable(triple)
    assert set(last.info.features) == {*levels[-1].info.features, feature}
    assert last.info.name == name
    assert word_product(last.info) == product != word_product(levels[-1].info)
    assert targets.resolve(name).info.features == last.info.features
    assert f"--iree-llvmcpu-target-cpu-features=+{feature}" in last.flags


def test_words_that_gain_nothing_from_dot_products_have_no_module_for_them() -> None:
    for triple, words in (("x86_64-unknown-linux-gnu", ("bf16", "f16")), ("aarch64-unknown-linux-gnu", ("int8",))):
        assert all(targets.portable(triple, word) == targets.portable(triple) for word in words)


def test_hopper_is_compiled_as_ada() -> None:
    t = targets.resolve("cuda:sm_90")
    assert t.info.detail == "sm_89"
    assert "sm_90 is compiled as sm_89" in t.note
    assert targets.resolve("cuda:sm_80").note == ""


@pytest.mark.parametrize(
    ("word", "said"),
    [
        ("tpu", "unknown target 'tpu'; near names: cpu"),
        ("qqqq", "unknown target 'qqqq'; known: cpu"),
        ("", "unknown target ''"),
        ("cpu:", "a name is missing after the colon"),
        ("cpu:hots", "unknown processor 'hots'"),
        ("CPU", "unknown target 'CPU'; near names: cpu"),
        ("cuda:0", "cuda:0 is the number of a device; write target='cuda', device='cuda:0'"),
        ("vulkan:1", "write target='vulkan', device='vulkan:1'"),
        ("cpu:znver9", "near names: cpu:znver5"),
        ("cpu:--iree-x", "unknown processor"),
        ("vulkan:hopper", "unknown vulkan device 'hopper'"),
        ("vulkan:rdna33", "vulkan:rdna3"),
        ("cuda:sm_88", "near names: cuda:sm_89"),
        ("hip:gfx9999", "unknown hip device"),
        ("vulkan:adreno", "unknown vulkan device"),  # loses bytes of booleans
        ("metal:m1", "takes no name"),
    ],
)
def test_unknown(word: str, said: str) -> None:
    with pytest.raises(TargetError) as e:
        targets.resolve(word)
    assert said in str(e.value)


def test_cuda_without_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cuda_name", lambda: None)
    with pytest.raises(TargetError, match=r"no device here; name one: cuda:sm_60, .*cuda:sm_89"):
        devices.resolve("cuda")
    monkeypatch.setattr(devices, "cuda_name", lambda: "sm_90")
    assert devices.resolve("cuda").info.name == "cuda:sm_89"
    monkeypatch.setattr(devices, "hip_name", lambda: None)
    with pytest.raises(TargetError, match="hip:gfx942"):
        devices.resolve("hip")


def test_a_device_that_is_not_handed_over_is_not_looked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "cuda_name", lambda: "sm_90")
    with pytest.raises(TargetError, match="target cuda: no device here"):
        targets.resolve("cuda")
    assert targets.resolve("hip", {"hip": "gfx942"}.get).info.name == "hip:gfx942"


def test_hip_name(tmp_path: Path) -> None:
    for i, version in enumerate((0, 90402, 110000)):
        (tmp_path / str(i)).mkdir()
        (tmp_path / str(i) / "properties").write_text(f"a 1\ngfx_target_version {version}\n")
    assert devices.hip_name(tmp_path) == "gfx942"
    assert devices.hip_name(tmp_path / "none") is None


def test_available() -> None:
    found = {a.kind: a for a in devices.available()}
    assert list(found) == list(targets.KINDS)
    assert all(a.compiles for a in found.values())
    assert found["cpu"].devices
    for a in found.values():
        assert bool(a.devices) != bool(a.reason)
    assert "metal" in found["metal"].reason or found["metal"].devices


def test_missing_is_conservative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpus, "flags", lambda: frozenset({"avx", "avx2", "bmi1"}))
    monkeypatch.setattr(cpus, "_confirmed", set())
    monkeypatch.setattr(cpus, "machine", lambda: "x86_64")
    assert cpus.missing(("avx2", "bmi", "x87")) == []
    assert cpus.missing(("avx2", "fma", "never-heard-of")) == ["fma", "never-heard-of"]
    monkeypatch.setattr(cpus, "flags", frozenset)
    assert cpus.missing(("avx2",)) == ["avx2"]


@pytest.mark.parametrize(
    "word",
    ["cpu", "cpu:aarch64", "cpu:aarch64-apple", "cpu:aarch64-android", "cpu:x86-64-android",
     "cpu:riscv64", "vulkan", "vulkan:rdna3", "cuda:sm_89", "hip:gfx942", "metal"],
)  # fmt: skip
def test_compiles(word: str) -> None:
    blob = compile_mlir(ADD, targets.resolve(word), name="add")
    assert 2000 < len(blob) < 100_000


@pytest.mark.parametrize("kind", ["cuda", "hip", "vulkan"])
def test_last_name_of_each_list_compiles(kind: str) -> None:
    names = {"cuda": targets.CUDA, "hip": targets.HIP, "vulkan": targets.VULKAN}[kind]
    assert compile_mlir(ADD, targets.resolve(f"{kind}:{names[-1]}"), name="add")


def test_workers_keep_to_processors_only_where_they_have_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {2, 0, 5}, raising=False)
    assert runtime._topology(3) == ("--task_topology_cpu_ids=0,2,5",)
    assert runtime._topology(2) == ("--task_topology_group_count=2",)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {4}, raising=False)
    assert runtime._topology(1) == ("--task_topology_group_count=1",)
    monkeypatch.delattr(os, "sched_getaffinity", raising=False)  # macOS
    assert runtime._topology(3) == ("--task_topology_group_count=3",)
