"""A hand-written module with many small entries, and its signature: no graph is involved."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from lstm_ir.backends.compile.compiler import compile_mlir
from lstm_ir.backends.run.devices import resolve
from lstm_ir.backends.run.executable import Executable
from lstm_ir.backends.targets.target import Target
from lstm_ir.ir import dims
from lstm_ir.ir.signature import Check, Entry, Port, Requirement, Signature
from lstm_ir.ir.types import TensorType, parse_type

DOUBLED = ("f32", "f64", "i8", "u8", "i32", "u32", "i64", "f16", "bf16")
_MLIR = {"u8": "ui8", "u32": "ui32"}

_HEAD = """
module @handmade {
  util.global private @w = #flow.parameter.named<"model"::"enc/w"> : tensor<5xf32>
  func.func @main(%a: tensor<?x5xf32>) -> tensor<?x5xf32> {
    %w = util.global.load @w : tensor<5xf32>
    %c0 = arith.constant 0 : index
    %n = tensor.dim %a, %c0 : tensor<?x5xf32>
    %i = arith.index_cast %n : index to i32
    %c5 = arith.constant 5 : i32
    %s = tensor.from_elements %i, %c5 : tensor<2xi32>
    %b = "stablehlo.dynamic_broadcast_in_dim"(%w, %s) {
      broadcast_dimensions = array<i64: 1>} : (tensor<5xf32>, tensor<2xi32>) -> tensor<?x5xf32>
    %0 = stablehlo.add %a, %b : tensor<?x5xf32>
    return %0 : tensor<?x5xf32>
  }
  func.func @twice(%a: tensor<?xf32>) -> (tensor<?xf32>, tensor<?xf32>) {
    return %a, %a : tensor<?xf32>, tensor<?xf32>
  }
  func.func @weight() -> tensor<5xf32> {
    %w = util.global.load @w : tensor<5xf32>
    return %w : tensor<5xf32>
  }
  func.func @guarded(%a: tensor<i32>) -> tensor<i32> {
    %v = tensor.extract %a[] : tensor<i32>
    %five = arith.constant 5 : i32
    %ok = arith.cmpi sle, %v, %five : i32
    cf.assert %ok, "guarded: a is above 5"
    %0 = stablehlo.add %a, %a : tensor<i32>
    return %0 : tensor<i32>
  }
  func.func @invert(%a: tensor<7xi1>) -> tensor<7xi1> {
    %0 = stablehlo.not %a : tensor<7xi1>
    return %0 : tensor<7xi1>
  }
  func.func @larger(%a: tensor<7xf32>, %b: tensor<7xf32>) -> tensor<7xf32> {
    %m = stablehlo.compare GT, %a, %b : (tensor<7xf32>, tensor<7xf32>) -> tensor<7xi1>
    %k = util.optimization_barrier %m : tensor<7xi1>
    %0 = stablehlo.select %k, %a, %b : tensor<7xi1>, tensor<7xf32>
    return %0 : tensor<7xf32>
  }
  func.func @count(%a: tensor<?xf32>) -> (tensor<?xf32>, tensor<i32>) {
    %c0 = arith.constant 0 : index
    %d = tensor.dim %a, %c0 : tensor<?xf32>
    %i = arith.index_cast %d : index to i32
    %zero = arith.constant 0 : i32
    %minus = arith.constant -1 : i32
    %none = arith.cmpi eq, %i, %zero : i32
    %v = arith.select %none, %minus, %i : i32
    %n = tensor.from_elements %v : tensor<i32>
    %0 = stablehlo.add %a, %a : tensor<?xf32>
    return %0, %n : tensor<?xf32>, tensor<i32>
  }
  func.func @count.empty.N(%a: tensor<0xf32>) -> (tensor<0xf32>, tensor<i32>) {
    %0 = stablehlo.add %a, %a : tensor<0xf32>
    %n = stablehlo.constant dense<0> : tensor<i32>
    return %0, %n : tensor<0xf32>, tensor<i32>
  }
  func.func @nothing(%a: tensor<0x3xf32>) -> tensor<0x3xf32> {
    return %a : tensor<0x3xf32>
  }
  func.func @sums(%a: tensor<3xf32>, %b: tensor<3xf32>) -> (tensor<3xf32>, tensor<3xf32>) {
    %0 = stablehlo.add %a, %b : tensor<3xf32>
    %1 = stablehlo.subtract %a, %b : tensor<3xf32>
    return %0, %1 : tensor<3xf32>, tensor<3xf32>
  }
  func.func @lengths(%x: tensor<?x3xf32>, %n: tensor<3xi32>) -> tensor<3xi32> {
    %0 = stablehlo.add %n, %n : tensor<3xi32>
    return %0 : tensor<3xi32>
  }
"""


def text(dtypes: tuple[str, ...] = DOUBLED) -> str:
    """The module, with an entry `double_<dtype>` for each of `dtypes`."""
    parts = [_HEAD]
    for d in dtypes:
        t = f"tensor<7x{_MLIR.get(d, d)}>"
        parts.append(
            f"  func.func @double_{d}(%a: {t}) -> {t} {{\n"
            f"    %0 = stablehlo.add %a, %a : {t}\n    return %0 : {t}\n  }}\n"
        )
    return "".join(parts) + "}\n"


def port(name: str, kind: str) -> Port:
    return Port(name, parse_type(kind))


def entry(name: str, inputs: dict[str, str], outputs: dict[str, str], **more: Any) -> Entry:
    ins = tuple(port(n, k) for n, k in inputs.items())
    outs = tuple(port(n, k) for n, k in outputs.items())
    named = sorted({n for p in ins for n in p.type.names})
    return Entry(name, ins, outs, dims=tuple(named), **more)


def signature(dtypes: tuple[str, ...] = DOUBLED) -> Signature:
    t = dims.name("T")
    entries = [
        entry("main", {"input.1": "f32[T,5]"}, {"y": "f32[T,5]"}),
        entry("twice", {"a": "f32[N]"}, {"p": "f32[N]", "q": "f32[N]"}),
        entry("weight", {}, {"w": "f32[5]"}),
        entry("guarded", {"a": "i32[]"}, {"y": "i32[]"}),
        entry("invert", {"a": "i1[7]"}, {"y": "i1[7]"}),
        entry("larger", {"a": "f32[7]", "b": "f32[7]"}, {"y": "f32[7]"}),
        entry("count", {"a": "f32[N]"}, {"y": "f32[N]", "n": "i32[]"}),
        entry("nothing", {"a": "f32[0,3]"}, {"y": "f32[0,3]"}),
        entry("sums", {"a": "f32[3]", "b": "f32[3]"}, {"sum": "f32[3]", "difference": "f32[3]"}),
        entry(
            "lengths",
            {"x": "f32[T,3]", "n": "i32[3]"},
            {"y": "i32[3]"},
            requires=(Requirement(t - 2, "slice: axis 0 needs at least 2"),),
            checks=(Check("n", 0, t, "lengths"),),
        ),
        *(entry(f"double_{d}", {"a": f"{d}[7]"}, {"y": f"{d}[7]"}) for d in dtypes),
    ]
    return Signature("handmade", {e.name: e for e in entries}, {"enc/w": TensorType((5,), F32)})


F32 = parse_type("f32[]").dtype
WEIGHTS = {"enc/w": np.array([0.5, 1, -2, 3, 4], np.float32)}


@cache
def module(word: str) -> tuple[Target, bytes]:
    """The module compiled for `word`; f64, f16 and bf16 only where the target has them."""
    target = resolve(word)
    return target, compile_mlir(text(dtypes(target)), target, name="handmade")


def dtypes(target: Target) -> tuple[str, ...]:
    i = target.info
    has = {"f64": i.has_f64, "f16": i.has_f16, "bf16": i.has_bf16}
    return tuple(d for d in DOUBLED if has.get(d, True))


def load(word: str = "cpu", **how: Any) -> Executable:
    target, blob = module(word)
    return Executable(signature(dtypes(target)), blob, WEIGHTS, target, **how)
