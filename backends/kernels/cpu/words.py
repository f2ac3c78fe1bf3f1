"""Products of int8: four elements of a row times four of each column of a vector, added up in i32.

An instruction for it is in most processors since 2018: `vpdpbusd` (AVX-512 VNNI, AVX-VNNI) takes the elements of one
operand unsigned, so rows are kept 128 larger, and a column's sum begins with -128 times the sum of its weights; `sdot`
(Arm's dot product) takes both signed. Older x86-64 multiplies unsigned by signed and adds pairs in 16 bits
(`pmaddubsw`): a row's elements without their signs, which the weights take over (`psignb`). Such weights lie in
-127 ... 127, so each has its negative, and a pair's sum fits. Where they may be -128, and in vectors of 512 bits,
which have no `psignb`, pairs are multiplied as i16 (`pmaddwd`). Where nothing is known each of the four is multiplied
by itself. All are exact: i32 holds 131,000 products of two int8.
"""

from __future__ import annotations

from collections.abc import Mapping

from lstm_ir.backends.kernels.body.plan import WORD
from lstm_ir.backends.kernels.cpu.register_tile import Sum
from lstm_ir.backends.kernels.text.statements import Name, TextOperand
from lstm_ir.backends.kernels.text.text import Text
from lstm_ir.ir.target import TargetInfo
from lstm_ir.ir.types import DType

OFFSET = 128  # of rows that are taken unsigned
_PAIRS = {4: "sse2.pmadd.wd", 8: "avx2.pmadd.wd", 16: "avx512.pmaddw.d.512"}
_SIGNED = {4: "ssse3.psign.b.128", 8: "avx2.psign.b"}
_UNSIGNED = {4: "ssse3.pmadd.ub.sw.128", 8: "avx2.pmadd.ub.sw"}


def word_product(target: TargetInfo) -> str:
    """The name of LLVM's intrinsic; "signs" for pairs of bytes, "pairs" for those of i16, "" for none."""
    bits, has = target.vector_bits, target.features
    if target.triple.startswith("x86_64"):
        if target.has_vpdpbusd:
            return f"x86.avx512.vpdpbusd.{bits}"
        if _SIGNED_FEATURE.get(bits) in has:
            return "signs"
        return "" if bits == 256 else "pairs"  # AVX alone has no integers of 256 bits
    arm = target.triple.startswith(("aarch64", "arm64"))
    return "aarch64.neon.sdot.v4i32.v16i8" if arm and bits == 128 and "dotprod" in has else ""


_SIGNED_FEATURE = {128: "ssse3", 256: "avx2"}


def for_weights(product: str, symmetric: bool) -> str:
    """The product that takes weights of -128 too, where they are not symmetric."""
    return "pairs" if product == "signs" and not symmetric else product


def word_product_of(target: TargetInfo, lanes: int) -> str:
    """As `word_product`, of vectors of so many lanes: "" beside columns of 64 bits.

    The instructions fill a vector with words; vectors of fewer lanes are of another width, which they do not take.
    """
    return word_product(target) if lanes * DType.i32.bits == target.vector_bits else ""


def row_offset(target: TargetInfo) -> int:
    """How much larger elements of rows are kept."""
    return OFFSET if "vpdpbusd" in word_product(target) else 0


def add_words(
    t: Text, product: str, sums: dict[Sum, Name], word: TextOperand, vectors: Mapping[Sum, TextOperand], offset: int
) -> None:
    """Add the four products of each lane to the sums that `vectors` names; `word` is of the row.

    offset: elements of the row are kept so much larger, and are unsigned.
    """
    kind = t.vector("i32")
    every = t.op("vector.broadcast {} : i32 to {}", word, kind)
    if product == "signs":
        _add_by_signs(t, sums, _as(t, every, t.vector("i8", WORD * t.lanes)), vectors)
    elif product == "pairs":
        halves = _halves(t, every)
        for key, v in vectors.items():
            for a, b in zip(halves, _halves(t, v), strict=True):
                wide = t.vector("i16", 2 * t.lanes)
                made = f'llvm.call_intrinsic "llvm.x86.{_PAIRS[t.lanes]}"({{}}, {{}}) : ({wide}, {wide}) -> {kind}'
                sums[key] = t.binary("addi", sums[key], t.op(made, a, b), kind)
    elif product:
        wide = t.vector("i8", WORD * t.lanes)
        made = f'llvm.call_intrinsic "llvm.{product}"({{}}, {{}}, {{}}) : ({kind}, {wide}, {wide}) -> {kind}'
        row = _as(t, every, wide)
        for key, v in vectors.items():
            sums[key] = t.op(made, sums[key], row, _as(t, v, wide))
    else:
        row_parts = _elements(t, every, "shrui" if offset else "shrsi")
        for key, v in vectors.items():
            for a, b in zip(row_parts, _elements(t, v, "shrsi"), strict=True):
                sums[key] = t.binary("addi", sums[key], t.binary("muli", a, b, kind), kind)


def _add_by_signs(t: Text, sums: dict[Sum, Name], row: TextOperand, vectors: Mapping[Sum, TextOperand]) -> None:
    bytes_, halves, kind = t.vector("i8", WORD * t.lanes), t.vector("i16", 2 * t.lanes), t.vector("i32")

    def call(name: str, a: TextOperand, b: TextOperand, of: str, to: str) -> Name:
        return t.op(f'llvm.call_intrinsic "llvm.x86.{name}"({{}}, {{}}) : ({of}, {of}) -> {to}', a, b)

    size, ones = t.op(f"math.absi {{}} : {bytes_}", row), t.constant("1", halves)
    for key, v in vectors.items():
        turned = call(_SIGNED[t.lanes], _as(t, v, bytes_), row, bytes_, bytes_)
        pairs = call(_UNSIGNED[t.lanes], size, turned, bytes_, halves)
        sums[key] = t.binary("addi", sums[key], call(_PAIRS[t.lanes], pairs, ones, halves, kind), kind)


def _as(t: Text, words: TextOperand, kind: str) -> TextOperand:
    """Words as narrower elements."""
    return t.op("vector.bitcast {} : {} to {}", words, t.vector("i32"), kind)


def _halves(t: Text, v: TextOperand) -> list[TextOperand]:
    """The even elements and the odd ones of each word, as i16."""
    wide = t.vector("i16", 2 * t.lanes)
    eight = t.constant("8", wide)
    pairs = _as(t, v, wide)
    return [t.binary("shrsi", t.binary("shli", pairs, eight, wide), eight, wide), t.binary("shrsi", pairs, eight, wide)]


def _elements(t: Text, v: TextOperand, shift: str) -> list[TextOperand]:
    """Each of the four elements of every word, as i32; `shift` keeps the sign, or takes it for a bit of the number."""
    kind = t.vector("i32")
    last = t.constant("24", kind)
    moved = [t.binary("shli", v, t.constant(str(24 - 8 * i), kind), kind) for i in range(WORD - 1)]
    return [t.binary(shift, m, last, kind) for m in (*moved, v)]
