"""What the compiler says of a processor: LLVM's name of it, its features, how wide its vectors are."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import NamedTuple

from lstm_ir.backends.compile import compiler
from lstm_ir.backends.compile.cache import Cache, key
from lstm_ir.ir.errors import CompileError

_PROBE = """module @probe { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.add %a, %a : tensor<4xf32>
  return %0 : tensor<4xf32> } }"""


class Processor(NamedTuple):
    """A processor as LLVM knows it."""

    name: str
    features: tuple[str, ...]  # sorted
    vector_bytes: int


@cache
def describe(triple: str, cpu: str, flags: tuple[str, ...] = (), machine: str = "") -> Processor:
    """The processor that LLVM calls `cpu`; `flags` as modules for it are compiled with.

    `host` is this machine's. Answers are kept on disk; that one by `machine`, so that a disk that was
    moved to another is asked for again.
    """
    store = Cache()
    entry = key("processor", triple, cpu, machine, *compiler.versions()) + ".json"
    if (kept := store.get(entry)) is not None:
        name, features, width = json.loads(kept)
        return Processor(name, tuple(features), width)
    probe = [
        "--iree-input-type=stablehlo",
        "--iree-hal-target-device=local",
        "--iree-hal-local-target-device-backends=llvm-cpu",
        f"--iree-llvmcpu-target-triple={triple}",
        f"--iree-llvmcpu-target-cpu={cpu}",
        "--compile-to=flow",
        *flags,
    ]
    text = compiler.run(_PROBE, probe, name=f"cpu:{cpu}", target="cpu", timeout=60).decode()
    found = re.search(r'cpu = "([^"]*)", cpu_features = "([^"]*)"', text)
    width_found = re.search(r"native_vector_size = (\d+)", text)
    if found is None or width_found is None:
        raise CompileError(f"cpu:{cpu}: the compiler did not say what this processor has")
    has: dict[str, bool] = {}
    for f in filter(None, found[2].split(",")):
        has[f[1:]] = f[0] == "+"  # the last one holds
    enabled = tuple(sorted(f for f, on in has.items() if on and f != "reserve-x18"))
    answer = Processor(found[1], enabled, int(width_found[1]))
    store.put(entry, json.dumps(answer).encode())
    return answer
