"""Processors: the names the compiler takes, and what this machine has. No third-party module."""

from __future__ import annotations

import os
import platform
import sys
from functools import cache
from pathlib import Path

X86 = tuple(
    """x86-64 x86-64-v2 x86-64-v3 x86-64-v4 nocona core2 penryn bonnell atom silvermont slm goldmont
    goldmont-plus tremont nehalem corei7 westmere sandybridge corei7-avx ivybridge core-avx-i
    haswell core-avx2 broadwell skylake skylake-avx512 skx cascadelake cooperlake cannonlake
    icelake-client rocketlake icelake-server tigerlake sapphirerapids alderlake raptorlake
    meteorlake arrowlake arrowlake-s lunarlake gracemont pantherlake sierraforest grandridge
    graniterapids graniterapids-d emeraldrapids clearwaterforest diamondrapids k8 athlon64 opteron
    k8-sse3 athlon64-sse3 opteron-sse3 amdfam10 barcelona btver1 btver2 bdver1 bdver2 bdver3 bdver4
    znver1 znver2 znver3 znver4 znver5""".split()
)
ARM = tuple(
    """a64fx ampere1 ampere1a ampere1b apple-a10 apple-a11 apple-a12 apple-a13 apple-a14 apple-a15
    apple-a16 apple-a17 apple-a18 apple-m1 apple-m2 apple-m3 apple-m4 carmel cobalt-100
    cortex-a34 cortex-a35 cortex-a510 cortex-a520 cortex-a53 cortex-a55 cortex-a57 cortex-a65
    cortex-a710 cortex-a715 cortex-a72 cortex-a720 cortex-a725 cortex-a73 cortex-a75 cortex-a76
    cortex-a77 cortex-a78 cortex-a78c cortex-x1 cortex-x1c cortex-x2 cortex-x3 cortex-x4
    cortex-x925 exynos-m3 exynos-m4 exynos-m5 falkor fujitsu-monaka gb10 grace kryo neoverse-512tvb
    neoverse-e1 neoverse-n1 neoverse-n2 neoverse-n3 neoverse-v1 neoverse-v2 neoverse-v3 oryon-1
    saphira thunderx2t99 thunderx3t110 tsv110""".split()
)

# LLVM's feature -> the flag in /proc/cpuinfo. Only these decide whether a module may be mapped.
_X86_FLAGS = {
    "sse3": "pni", "bmi": "bmi1", "sse4.1": "sse4_1", "sse4.2": "sse4_2", "cx16": "cx16",
    "lzcnt": "abm", "sahf": "lahf_lm", "pclmul": "pclmulqdq", "rdrnd": "rdrand", "sha": "sha_ni",
    "avx512bitalg": "avx512_bitalg", "avx512vbmi2": "avx512_vbmi2", "avx512vnni": "avx512_vnni",
    "avx512vpopcntdq": "avx512_vpopcntdq", "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni", "avxifma": "avx_ifma",
    "avx512vp2intersect": "avx512_vp2intersect", "avxneconvert": "avx_ne_convert",
    "avxvnniint8": "avx_vnni_int8", "avxvnniint16": "avx_vnni_int16", "prfchw": "3dnowprefetch",
    "amx-bf16": "amx_bf16", "amx-int8": "amx_int8", "amx-tile": "amx_tile",
    "amx-fp16": "amx_fp16", "amx-complex": "amx_complex", "crc32": "sse4_2",
}  # fmt: skip
_ARM_FLAGS = {
    "neon": "asimd", "fp-armv8": "fp", "crc": "crc32", "lse": "atomics", "rdm": "asimdrdm",
    "dotprod": "asimddp", "fullfp16": "asimdhp", "fp16fml": "asimdfhm", "rcpc": "lrcpc",
    "jsconv": "jscvt", "complxnum": "fcma", "ccpp": "dcpop", "ccdp": "dcpodp",
    "altnzcv": "flagm2", "fptoint": "frint", "pauth": "paca", "sha3": "sha512", "sve": "sve",
    "sve2": "sve2", "i8mm": "i8mm", "bf16": "bf16", "aes": "aes", "sha2": "sha2", "sb": "sb",
    "ssbs": "ssbs", "flagm": "flagm", "sme": "sme", "sve-bitperm": "svebitperm",
}  # fmt: skip
# A number for a sum of features without an instruction of its own; /proc/cpuinfo has no flag for it on many kernels.
_AVX10_1 = tuple(
    """avx512f avx512cd avx512bw avx512dq avx512vl avx512ifma avx512vbmi avx512vbmi2 avx512vnni avx512bf16
    avx512bitalg avx512vpopcntdq avx512fp16""".split()
)
_SUMS = {"avx10.1": _AVX10_1, "avx10.1-256": _AVX10_1, "avx10.1-512": _AVX10_1}
# Never chosen by the code generator on its own, or part of the architecture itself.
_FREE = frozenset(
    """64bit cmov cx8 fxsr mmx sse sse2 x87 cldemote clflushopt clwb clzero enqcmd fsgsbase
    invpcid movdir64b movdiri mwaitx pconfig pku prefetchi ptwrite rdpid rdpru rdseed rtm serialize
    sgx shstk tsxldtrk uintr waitpkg wbnoinvd xsave xsavec xsaveopt xsaves kl widekl hreset
    perfmon ras spe predres specrestrict reserve-x18 pan mte tlb-rmi ecv hcx wfxt vh lor
    sel2 tracev8.4 am amvs nv mpam dit uaops ete trbe bti contextidr-el2""".split()
)

_confirmed: set[str] = set()


def machine() -> str:
    """x86_64 or aarch64, as triples have it."""
    word = platform.machine().lower()
    return {"amd64": "x86_64", "arm64": "aarch64"}.get(word, word)


def host_triple() -> str:
    """The triple of this machine."""
    if sys.platform == "darwin":
        return f"{'arm64' if machine() == 'aarch64' else 'x86_64'}-apple-macosx"
    return f"{machine()}-unknown-linux-gnu"


_REPORTED = ("avx", "f16c", "fma", "avx2", "avx512f", "avx512bw", "avx512_bf16", "asimd", "asimddp", "sve", "sve2")


def here() -> str:
    """This machine in words, for messages: its triple, and the flags that decide most often."""
    told = [f for f in _REPORTED if f in flags()]
    return f"{host_triple()} with {' '.join(told) if told else 'none of ' + ' '.join(_REPORTED)}"


def architecture(triple: str) -> str:
    """The first part of a triple, in one spelling."""
    first = triple.split("-", 1)[0]
    return "aarch64" if first == "arm64" else first


@cache
def flags() -> frozenset[str]:
    """The processor flags that the operating system reports, as it spells them."""
    if sys.platform == "darwin":
        return _darwin_flags()
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return frozenset()
    found: set[str] | None = None
    for line in text.splitlines():
        head, _, tail = line.partition(":")
        if head.strip() in ("flags", "Features"):
            here = set(tail.split())
            found = here if found is None else found & here  # what every core has
    return frozenset(found if found is not None else ())


def _darwin_flags() -> frozenset[str]:
    text = _sysctl("-a")
    values = dict(line.split(": ", 1) for line in text.splitlines() if ": " in line)
    out = {k.rsplit(".", 1)[1].lower() for k, v in values.items() if ".arm.FEAT_" in k and v == "1"}
    for key in ("machdep.cpu.features", "machdep.cpu.leaf7_features", "machdep.cpu.extfeatures"):
        out |= {w.lower().replace(".", "_") for w in values.get(key, "").split()}
    apple = {
        "feat_lse": "atomics", "feat_rdm": "asimdrdm", "feat_dotprod": "asimddp",
        "feat_fp16": "asimdhp", "feat_fhm": "asimdfhm", "feat_lrcpc": "lrcpc",
        "feat_jscvt": "jscvt", "feat_fcma": "fcma", "feat_dpb": "dcpop", "feat_dpb2": "dcpodp",
        "feat_flagm": "flagm", "feat_flagm2": "flagm2", "feat_frintts": "frint",
        "feat_pauth": "paca", "feat_sha512": "sha512", "feat_aes": "aes", "feat_sha256": "sha2",
        "feat_crc32": "crc32", "feat_sb": "sb", "feat_ssbs": "ssbs", "feat_i8mm": "i8mm",
        "feat_bf16": "bf16",
    }  # fmt: skip
    intel = {"sse3": "pni", "avx1_0": "avx", "lahf": "lahf_lm", "lzcnt": "abm"}
    out |= {apple[f] for f in out if f in apple} | {intel[f] for f in out if f in intel}
    return frozenset(out | ({"asimd", "fp"} if machine() == "aarch64" else set()))


def _sysctl(*words: str) -> str:
    import subprocess  # on macOS alone

    try:
        done = subprocess.run(["sysctl", *words], capture_output=True, text=True, timeout=20)
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout


def needed(features: tuple[str, ...]) -> tuple[str, ...]:
    """Of a target's features, those whose absence would kill the process, each once."""
    parts = (part for f in features for part in _SUMS.get(f, (f,)))
    return tuple(dict.fromkeys(f for f in parts if f not in _FREE and not _is_level(f)))


def _is_level(feature: str) -> bool:
    """`v8.2a`: the sum of features that are listed beside it."""
    return feature[:1] == "v" and feature[1:2].isdigit()


def missing(features: tuple[str, ...]) -> list[str]:
    """The features that this machine lacks, or that nothing here says it has."""
    names = _ARM_FLAGS if machine() == "aarch64" else _X86_FLAGS
    here = flags()
    return [f for f in needed(features) if f not in _confirmed and names.get(f, f) not in here]


def confirm(features: tuple[str, ...]) -> None:
    """Record what the compiler itself found on this machine, by asking the processor."""
    _confirmed.update(features)


def refusal(triple: str, features: tuple[str, ...]) -> str | None:
    """Why this machine cannot run code for `triple` that uses `features`; None if it can.

    Asked before a module is mapped: IREE checks nothing, and a wrong instruction is a SIGILL.
    """
    if architecture(triple) != machine():
        return f"made for {architecture(triple)}, this is {machine()}"
    lacking = missing(features)
    return f"this processor lacks {', '.join(lacking)}" if lacking else None


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return max(1, os.cpu_count() or 1)


def cache_bytes() -> tuple[int, int]:
    """L1 data and L2 sizes of one core; (0, 0) where the system does not say."""
    if sys.platform == "darwin":
        sizes = [_sysctl("-n", f"hw.l{i}cachesize").strip() for i in ("1d", "2")]
        return (_int(sizes[0]), _int(sizes[1]))
    found = {"1": 0, "2": 0}
    for place in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*"):
        try:
            level, kind, size = ((place / f).read_text().strip() for f in ("level", "type", "size"))
        except OSError:
            continue
        if level in found and kind in ("Data", "Unified"):
            found[level] = _int(size.rstrip("KM")) << (20 if size.endswith("M") else 10)
    return found["1"], found["2"]


def _int(text: str) -> int:
    return int(text) if text.isdigit() else 0
