"""The most that the processor's multiply-adds give: a kernel of nothing else, by IREE's compiler and workers.

Each workgroup keeps twelve vectors in registers, multiplies them by one number and adds another, over and over. Twelve
chains hide the latency of four to five cycles of two units, and fit sixteen registers. Memory is not read.
"""

from __future__ import annotations

import time
from typing import Any

CHAINS, INNER, OUTER = 12, 64, 1024
SCALE, SHIFT = 0.5, 1.0  # x <- x/2 + 1 stays a normal number
ROUNDS = 15


def text(lanes: int) -> str:
    """The module: main(groups) runs so many workgroups and gives the sum of the chains, [groups, lanes]."""
    kind = f"vector<{lanes}xf32>"
    carried = ", ".join(f"%a{k} = %s{k}" for k in range(CHAINS))
    inner, values = [], [f"%a{k}" for k in range(CHAINS)]
    for n in range(INNER):
        new = [f"%f{n}_{k}" for k in range(CHAINS)]
        inner += [f"{r} = vector.fma {v}, %scale, %shift : {kind}" for r, v in zip(new, values, strict=True)]
        values = new
    starts = [f"%s{k} = arith.constant dense<{float(k)}> : {kind}" for k in range(CHAINS)]
    sums, last = [], "%r#0"
    for k in range(1, CHAINS):
        sums.append(f"%t{k} = arith.addf {last}, %r#{k} : {kind}")
        last = f"%t{k}"
    lines = "\n          ".join
    kinds = ", ".join([kind] * CHAINS)
    return f"""#plain = #iree_codegen.translation_info<pipeline = #iree_codegen.no_pipeline>
module {{
  stream.executable private @peak {{
    stream.executable.export public @run workgroups(%n: index) -> (index, index, index) {{
      %one = arith.constant 1 : index
      stream.return %n, %one, %one : index, index, index
    }}
    builtin.module {{
      func.func @run(%n: index, %out: !stream.binding) attributes {{translation_info = #plain}} {{
        %zero = arith.constant 0 : index
        %one = arith.constant 1 : index
        %count = arith.constant {OUTER} : index
        %to = stream.binding.subspan %out[%zero] : !stream.binding -> memref<?x{lanes}xf32>{{%n}}
        %group = stream.dispatch.workgroup.id[0] : index
        %scale = arith.constant dense<{SCALE}> : {kind}
        %shift = arith.constant dense<{SHIFT}> : {kind}
        {lines(starts)}
        %r:{CHAINS} = scf.for %i = %zero to %count step %one iter_args({carried}) -> ({kinds}) {{
          {lines(inner)}
          scf.yield {", ".join(values)} : {kinds}
        }}
        {lines(sums)}
        vector.store {last}, %to[%group, %zero] : memref<?x{lanes}xf32>, {kind}
        return
      }}
    }}
  }}
  func.func @main(%like: tensor<?xi8>) -> tensor<?x{lanes}xf32> {{
    %zero = arith.constant 0 : index
    %n = tensor.dim %like, %zero : tensor<?xi8>
    %y = flow.dispatch @peak::@run[%n](%n) : (index) -> tensor<?x{lanes}xf32>{{%n}}
    return %y : tensor<?x{lanes}xf32>
  }}
}}
"""


def operations(groups: int, lanes: int) -> float:
    """Multiplications and additions of a call."""
    return 2.0 * groups * lanes * CHAINS * INNER * OUTER


def kernel(target: str) -> tuple[Any, int]:
    """The kernel compiled for the target, which takes an array i8[groups], and its vectors' lanes."""
    import iree.runtime as rt

    from lstm_ir.backends.compile.compiler import compile_mlir
    from lstm_ir.backends.run import runtime
    from lstm_ir.backends.run.devices import resolve

    where = resolve(target)
    lanes = max(where.info.vector_bits // 32, 1)
    blob = compile_mlir(text(lanes), where, name="peak")
    device = runtime.device("local-task")
    config = rt.Config(device=device)
    context = rt.SystemContext(config=config)
    context.add_vm_module(rt.VmModule.copy_buffer(config.vm_instance, blob))
    return context.modules.module["main"], lanes


def gflops(target: str = "cpu", threads: int = 1) -> float:
    """The best of some calls in which each thread has four workgroups, in GFLOP/s."""
    import numpy as np

    run, lanes = kernel(target)
    groups = 4 * threads
    like = np.zeros(groups, np.int8)
    best = float("inf")
    for _ in range(ROUNDS):
        start = time.perf_counter()
        run(like).to_host()
        best = min(best, time.perf_counter() - start)
    return operations(groups, lanes) / best / 1e9
