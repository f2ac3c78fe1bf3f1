"""Target words: `cpu`, `cpu:x86-64-v3`, `vulkan:rdna3`, `cuda:sm_89`, … -> flags and drivers."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cache
from pathlib import Path

from lstm_ir.backends.compile import processors
from lstm_ir.backends.compile.cache import key
from lstm_ir.backends.compile.processors import Processor
from lstm_ir.backends.targets import cpus
from lstm_ir.backends.targets.target import Target
from lstm_ir.ir.errors import TargetError
from lstm_ir.ir.near_names import nearest
from lstm_ir.ir.target import DEVICE, TargetInfo

# Only names in these lists reach the compiler: others crash it, or fail after seconds.
CUDA = ("sm_60", "sm_61", "sm_70", "sm_72", "sm_75", "sm_80", "sm_86", "sm_87", "sm_89", "sm_120",
        "sm_121")  # fmt: skip
CUDA_ALIAS = {"sm_90": "sm_89", "sm_90a": "sm_89", "sm_100": "sm_89", "sm_100a": "sm_89"}
HIP = ("gfx908", "gfx90a", "gfx942", "gfx950", "gfx1100", "gfx1101", "gfx1103", "gfx1150",
       "gfx1151", "gfx1200", "gfx1201")  # fmt: skip
VULKAN = ("cdna1", "cdna2", "cdna3", "cdna4", "rdna1", "rdna2", "rdna3", "rdna4", "gfx1030",
          "gfx1100", "gfx1101", "gfx1102", "gfx1201", "rx7900xtx", "rx7800xt", "pascal", "volta",
          "turing", "ampere", "ada", "sm_75", "sm_80", "sm_86", "sm_89", "sm_120", "rtx3090",
          "rtx4090", "a100", "valhall", "valhall1", "valhall2", "valhall3", "valhall4",
          "mali-g710", "mali-g715", "mali-g720")  # fmt: skip
# Plain `vulkan` is IREE's default with 8- and 16-bit storage and 64-bit integers: without 8-bit
# storage IREE packs bytes into words and loses the last ones of a tensor whose size is no multiple
# of four, booleans inside a module included. Its adreno targets have the same fault.
_VULKAN_PLAIN = (
    '#hal.device.target<"vulkan", [#hal.executable.target<"vulkan-spirv", "vulkan-spirv-fb", '
    '{iree_codegen.target_info = #iree_gpu.target<arch = "vp_android_baseline_2022", '
    'features = "spirv:v1.3,cap:Shader", wgp = <compute = fp32|fp16|int64|int32|int16|int8, '
    "storage = b64|b32|b16|b8, subgroup = none, subgroup_size_choices = [64], "
    "max_workgroup_sizes = [128, 128, 64], max_thread_count_per_workgroup = 128, "
    "max_workgroup_memory_bytes = 16384, max_workgroup_counts = [65535, 65535, 65535]>>}>]> "
    ": !hal.device"
)
# detail -> (triple, processor): an architecture, or one on another system
ARCHITECTURES = {
    "x86-64": ("x86_64-unknown-linux-gnu", "x86-64"),
    "x86-64-android": ("x86_64-linux-android", "x86-64-v2"),
    "aarch64": ("aarch64-unknown-linux-gnu", "generic"),
    "arm64": ("aarch64-unknown-linux-gnu", "generic"),
    "aarch64-android": ("aarch64-linux-android", "generic"),
    "aarch64-apple": ("arm64-apple-macosx", "apple-m1"),
    "riscv64": ("riscv64-unknown-linux-gnu", "generic-rv64"),
}
# RISC-V's names imply no features at all: those of its Linux profile are spelled out.
_RISCV = ("--iree-llvmcpu-target-cpu-features=+m,+a,+f,+d,+c", "--iree-llvmcpu-target-abi=lp64d")
# detail -> (architecture, processor, what it has besides, words of the option precision that use it): processors that
# multiply int8 four at a time
_DOTS = {
    "x86-64-v4-vnni": ("x86_64", "x86-64-v4", ("avx512vnni",), ("int8", "int8-dynamic")),
    "aarch64-dotprod": ("aarch64", "generic", ("dotprod",), ("int8-dynamic",)),
}
KINDS = ("cpu", "vulkan", "cuda", "hip", "metal")
_L1, _L2 = 32 << 10, 512 << 10
_L2_OF = {"x86-64-v4": 1 << 20}  # what servers with AVX-512 have at least


Present = Callable[[str], "str | None"]
"""The name of the device of a kind, cuda or hip, that is here; None without one."""


meanings: dict[str, str] = {}
"""Words that name another target in this process: the tests run what is for `cpu` on other processors."""


def resolve(word: str, present: Present = lambda kind: None) -> Target:
    """The target that `word` names; TargetError, with near names, for any other.

    Plain `cuda` and `hip` are what is `present`.
    """
    if not isinstance(word, str):
        raise TargetError(f"a target is a word like 'cpu' or 'vulkan', not {word!r}")
    word = meanings.get(word, word)
    kind, _, detail = word.strip().partition(":")
    if kind not in KINDS:
        gpu = "; a GPU is cuda, hip, vulkan or metal" if kind.lower() == "gpu" else ""
        raise TargetError(f"unknown target {word!r}{gpu or _near(word, tuple(words()))}")
    if word.strip().endswith(":"):
        raise TargetError(f"target {word!r}: a name is missing after the colon")
    if kind == "cpu":
        return _cpu(detail) if detail else this_machine()
    return _gpu(kind, detail, present)


def words() -> list[str]:
    """Every word that `resolve` takes, apart from those that need a device here."""
    out = ["cpu", "cpu:host", *(f"cpu:{d}" for d in (*ARCHITECTURES, *_DOTS, *cpus.X86, *cpus.ARM))]
    out += ["vulkan", *(f"vulkan:{d}" for d in VULKAN)]
    out += ["cuda", *(f"cuda:{d}" for d in (*CUDA, *CUDA_ALIAS)), "hip", *(f"hip:{d}" for d in HIP)]
    return list(dict.fromkeys([*out, "metal"]))


def portable(triple: str | None = None, precision: str | None = None) -> tuple[Target, ...]:
    """What `cpu` means in a package: a target for each level of this architecture (or `triple`'s), the least first.

    AArch64 has one, since kernels have vectors of 128 bits on all of it. precision: words of it have one more, with
    dot products of int8, from which f32 products gain nothing.
    """
    here = cpus.host_triple() if triple is None else triple
    architecture = cpus.architecture(here)
    levels = ("x86-64-v2", "x86-64-v3", "x86-64-v4") if architecture == "x86_64" else ("generic",)
    more = [d for d, (of, *_, words) in _DOTS.items() if precision in words and of == architecture]
    return (*(_named(here, level) for level in levels), *(_with_dots(d, here) for d in more))


def _with_dots(detail: str, triple: str) -> Target:
    _, cpu, extra, _ = _DOTS[detail]
    _, features, width = describe(triple, cpu)
    return _cpu_target(f"cpu:{detail}", triple, cpu, (*features, *extra), width, extra)


def _near(word: str, known: tuple[str, ...], prefix: str = "") -> str:
    found = nearest(word, known, cutoff=0.5)
    if found:
        return f"; near names: {', '.join(prefix + f for f in found)}"
    shown = ", ".join(prefix + k for k in known[:24])
    return f"; known: {shown}{', …' if len(known) > 24 else ''}"


def _cpu(detail: str) -> Target:
    if detail == "host":
        return this_machine()
    if detail in ARCHITECTURES:
        return _named(*ARCHITECTURES[detail])
    if detail in _DOTS:
        architecture = _DOTS[detail][0]
        here = architecture == cpus.architecture(cpus.host_triple())
        return _with_dots(detail, cpus.host_triple() if here else f"{architecture}-unknown-linux-gnu")
    detail = {"x86_64": "x86-64", "x86-64-v1": "x86-64"}.get(detail, detail)
    if detail in cpus.X86:
        here = cpus.machine() == "x86_64"
        return _named(cpus.host_triple() if here else "x86_64-unknown-linux-gnu", detail)
    if detail in cpus.ARM:
        apple = "arm64-apple-macosx" if detail.startswith("apple-") else "aarch64-unknown-linux-gnu"
        return _named(apple, detail)
    known = (*ARCHITECTURES, *_DOTS, *cpus.X86, *cpus.ARM)
    raise TargetError(f"unknown processor {detail!r} for target cpu{_near(detail, known, 'cpu:')}")


def _named(triple: str, cpu: str) -> Target:
    _, features, width = describe(triple, cpu)
    base = {"aarch64-linux-android": "aarch64-android", "x86_64-linux-android": "x86-64-android"}
    plain = {"generic": "aarch64", "generic-rv64": "riscv64"}
    name = base.get(triple, plain.get(cpu, cpu))
    return _cpu_target(f"cpu:{name}", triple, cpu, features, width, ())


@cache
def this_machine() -> Target:
    """The processor this runs on, with what it really has (virtual machines hide features)."""
    triple = cpus.host_triple()
    cpu, have, width = describe(triple, "host", _machine())
    cpus.confirm(have)
    own = describe(triple, cpu).features if cpu else ()
    if not cpu or not set(own) <= set(have):
        cpu = "generic"
        if cpus.machine() == "x86_64":
            levels = ("x86-64-v4", "x86-64-v3", "x86-64-v2", "x86-64")
            cpu = next(c for c in levels if set(describe(triple, c).features) <= set(have))
        own = describe(triple, cpu).features
    extra = tuple(f for f in have if f not in own)
    # Two machines with one processor name may differ in features: the name tells them apart.
    tag = f"+{key(*have)[:8]}" if extra else ""
    found = _cpu_target(f"cpu:{cpu}{tag}", triple, cpu, have, width, extra)
    l1, l2 = cpus.cache_bytes()
    l1, l2 = (l1 if l1 > 0 else _L1), (l2 if l2 > 0 else _L2)
    return found._replace(info=found.info._replace(l1_bytes=l1, l2_bytes=l2))


def _cpu_target(
    name: str, triple: str, cpu: str, features: tuple[str, ...], width: int, extra: tuple[str, ...]
) -> Target:
    flags = [
        f"--iree-hal-target-device={DEVICE}=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        f"--iree-llvmcpu-target-triple={triple}",
        f"--iree-llvmcpu-target-cpu={cpu}",
    ]
    flags += _more(triple)
    if extra and not _more(triple):
        flags.append("--iree-llvmcpu-target-cpu-features=" + ",".join(f"+{f}" for f in extra))
    info = TargetInfo(
        name=name, kind="cpu", detail=name.partition(":")[2], triple=triple, cpu=cpu,
        features=features, vector_bits=8 * width, l1_bytes=_L1, l2_bytes=_L2_OF.get(cpu, _L2), kernels=True,
    )  # fmt: skip
    return Target(info, tuple(flags), ("local-task", "local-sync"))


def describe(triple: str, cpu: str, machine: str = "") -> Processor:
    """What `cpu` implies; `machine` as in `processors.describe`."""
    return processors.describe(triple, cpu, _more(triple), machine)


def _more(triple: str) -> tuple[str, ...]:
    """Flags that every module for the architecture needs."""
    return _RISCV if triple.startswith("riscv64") else ()


def _machine() -> str:
    """What the system says that this machine is."""
    return "|".join(sorted(cpus.flags())) + _model()


def _model() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return ""
    return "|".join(re.findall(r"^(?:model name|CPU part|model|stepping)\s*:.*$", text, re.M)[:4])


def _gpu(kind: str, detail: str, present: Present) -> Target:
    note = ""
    known = {"cuda": CUDA, "hip": HIP, "vulkan": VULKAN, "metal": ()}[kind]
    if not detail and kind in ("cuda", "hip"):
        here = present(kind)
        if here is None:
            names = ", ".join(f"{kind}:{n}" for n in known)
            raise TargetError(f"target {kind}: no device here; name one: {names}")
        detail = here
    if kind == "cuda" and detail in CUDA_ALIAS:
        note = f"{detail} is compiled as {CUDA_ALIAS[detail]}, which the driver translates"
        detail = CUDA_ALIAS[detail]
    if detail.isdigit():
        raise TargetError(
            f"target {kind}:{detail} is the number of a device; write target={kind!r}, device='{kind}:{detail}'"
        )
    if detail and detail not in known:
        if not known:
            raise TargetError(f"target {kind} takes no name after a colon, got {detail!r}")
        raise TargetError(f"unknown {kind} device {detail!r}{_near(detail, known, kind + ':')}")
    flag = {"cuda": "cuda", "hip": "rocm", "vulkan": "vulkan"}.get(kind, "")
    plain = kind == "vulkan" and not detail
    flags = [f"--iree-hal-target-device={DEVICE}={_VULKAN_PLAIN if plain else kind}"]
    if detail:
        flags.append(f"--iree-{flag}-target={detail}")
    # In SPIR-V, a reduction over a leading axis that is fused with another reader of its operand is wrong. On CUDA,
    # all threads store a result of named sizes that lies between two reductions, and one of them has the first's value.
    flags.append("--iree-dispatch-creation-enable-aggressive-fusion=false")
    if kind in ("vulkan", "metal"):
        # A command buffer that is kept for later calls loses copies: a loop's results stayed zero.
        flags.append("--iree-hal-indirect-command-buffers=false")
    discrete = kind in ("cuda", "hip")
    info = TargetInfo(
        name=f"{kind}:{detail}" if detail else kind, kind=kind, detail=detail, vector_bits=128,
        has_f64=discrete, has_f16=True, has_bf16=discrete,
        l1_bytes=32 << 10, l2_bytes=4 << 20, kernels=kind in ("cuda", "vulkan"), assertions_cheap=False,
        bindings=16 if discrete else None,
    )  # fmt: skip
    return Target(info, tuple(flags), (kind,), note)
