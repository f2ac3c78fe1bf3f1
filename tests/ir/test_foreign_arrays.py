"""Tensors of PyTorch and arrays of JAX as inputs, weights, constants and state: taken through DLPack, or refused."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from conftest import Golden
from device import need

import lstm_ir as li
from lstm_ir.ir.arrays import Conform, take
from lstm_ir.ir.types import DType

KINDS = {"f16": "float16", "bf16": "bfloat16", "f32": "float32", "f64": "float64", "i8": "int8", "u8": "uint8",
         "i32": "int32", "i64": "int64", "i1": "bool"}  # fmt: skip
Make = Callable[[str, Any], Any]


def torch_array(kind: str, a: Any) -> Any:
    need("torch")
    import torch

    return torch.tensor(a.astype("f8") if kind == "bf16" else a).to(getattr(torch, KINDS[kind]))


def jax_array(kind: str, a: Any) -> Any:
    need("jax")
    import jax

    with jax.enable_x64(True):
        return jax.numpy.asarray(a)


def numbers(kind: str, seed: int) -> np.ndarray[Any, Any]:
    rng = np.random.default_rng(seed)
    a = rng.integers(0, 100, (5, 3)) if DType(kind).is_int else rng.standard_normal((5, 3)) * 4
    dtype = ml_dtypes.bfloat16 if kind == "bf16" else np.dtype(KINDS[kind])
    return (a > 0).astype(bool) if kind == "i1" else a.astype(dtype)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("make", [torch_array, jax_array])
def test_every_dtype_is_taken_bit_for_bit(make: Make, kind: str, seed: int) -> None:
    want = numbers(kind, seed)
    given = make(kind, want)
    dtype = DType(kind)
    for got in (
        take(Conform("x", dtype), given),
        li.weight("w", given).node.attrs["value"].array,
        li.constant(given).node.attrs["value"].array,
        li.constant(given, dtype).node.attrs["value"].array,
    ):
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()


@pytest.mark.parametrize("kind", ["f32", "f16", "bf16"])
def test_a_parameter_and_what_requires_a_gradient_are_taken_without_it(kind: str, seed: int) -> None:
    need("torch")
    import torch

    want = numbers(kind, seed)
    plain = torch_array(kind, want)
    for given in (torch.nn.Parameter(plain), plain.clone().requires_grad_(), plain.clone().requires_grad_() * 1):
        assert li.weight("w", given).node.attrs["value"].array.tobytes() == want.tobytes()
        assert take(Conform("x", DType(kind)), given).tobytes() == want.tobytes()
        assert given.requires_grad


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_a_sign_that_pytorch_keeps_beside_the_memory(kind: str, seed: int) -> None:
    """The imaginary part of a conjugate, which `torch.Tensor.numpy` refuses, and whose DLPack has the wrong sign."""
    need("torch")
    import torch

    want = numbers(kind, seed)
    given = torch.complex(torch_array(kind, want), torch_array(kind, -want)).conj().imag
    assert given.is_neg()
    assert li.weight("w", given).node.attrs["value"].array.tobytes() == want.tobytes()
    assert take(Conform("x", DType(kind)), given[1:]).tobytes() == want[1:].tobytes()


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_views_without_copies_and_copies_of_what_is_strided(kind: str, seed: int) -> None:
    want = numbers(kind, seed)
    given = torch_array(kind, want)
    conform = Conform("x", DType(kind))
    assert take(conform, given).__array_interface__["data"][0] == given.data_ptr()
    for strided, rows in ((given.T, want.T), (given[::2], want[::2]), (given[1:, 1:], want[1:, 1:])):
        assert take(conform, strided).tobytes() == np.ascontiguousarray(rows).tobytes()
    assert take(conform, given[:0]).shape == (0, 3)
    assert take(conform, given[0, 0]).tobytes() == want[0, 0].tobytes()


@pytest.mark.parametrize("kind", ["f32", "bf16", "i32"])
def test_arrays_of_jax_are_taken_where_they_lie(kind: str, seed: int) -> None:
    """Without a copy, and read-only: JAX's arrays never change."""
    want = numbers(kind, seed)
    given = jax_array(kind, want)
    taken = take(Conform("x", DType(kind)), given)
    assert taken.__array_interface__["data"][0] == given.unsafe_buffer_pointer()
    assert not taken.flags.writeable
    assert taken.tobytes() == want.tobytes()


def test_results_are_taken_by_torch_and_jax_where_they_lie(seed: int) -> None:
    """And given to the next call from there: no element is copied between two libraries in one process."""
    need("torch")
    need("jax")
    import jax
    import torch

    x = li.input("x", ("N",))
    a = np.random.default_rng(seed).standard_normal(1 << 16).astype("f4")
    with li.compile(li.Graph("double", [x], {"y": x * 2.0})) as exe:
        kept = exe(x=a, keep=True)["y"]
        place = kept.numpy().ctypes.data
        theirs = torch.from_dlpack(kept)
        assert theirs.data_ptr() == place
        np.testing.assert_array_equal(exe(x=theirs)["y"], a * 4)
        other = jax.numpy.from_dlpack(kept)
        assert other.unsafe_buffer_pointer() == place
        np.testing.assert_array_equal(exe(x=other)["y"], a * 4)


def test_a_weight_is_a_copy_that_training_in_torch_does_not_change(seed: int) -> None:
    need("torch")
    import torch

    given = torch.nn.Parameter(torch_array("f32", numbers("f32", seed)))
    weight = li.weight("w", given).node.attrs["value"].array
    before = weight.copy()
    with torch.no_grad():
        given.add_(1)
    np.testing.assert_array_equal(weight, before)


def test_calls_and_state_take_tensors(seed: int) -> None:
    need("torch")
    need("jax")
    import jax
    import torch

    x = li.input("x", ("T", 2, 3))
    h0 = li.input("h0", (2, 3))
    h, _ = li.scan(lambda h, row: (li.tanh(h + row), row), h0, x)
    graph = li.Graph("kept", [x, h0], {"h": h})
    program = li.Program(
        "kept", {"main": graph}, {"h": li.State("h", li.Data.of(np.zeros((2, 3), "f4")))},
        {"main": ({"h0": "h"}, {"h": "h"})},
    )  # fmt: skip
    rng = np.random.default_rng(seed)
    a, start = rng.standard_normal((5, 2, 3)).astype("f4"), rng.standard_normal((2, 3)).astype("f4")
    want = start
    for row in a:
        want = np.tanh(want + row)
    with li.compile(program) as exe:
        for make in (torch.tensor, lambda v: torch.nn.Parameter(torch.tensor(v)), jax.numpy.asarray):
            exe.state["h"] = make(start)
            np.testing.assert_array_equal(exe.state["h"], start)
            exe(x=make(a))
            np.testing.assert_allclose(exe.state["h"], want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(
        li.interpret(graph, x=torch.tensor(a), h0=jax.numpy.asarray(start))["h"], want, rtol=1e-5, atol=1e-6
    )


def test_large_tensors_are_lent_and_not_written_to(seed: int) -> None:
    need("torch")
    import torch

    x = li.input("x", ("N",))
    a = np.random.default_rng(seed).standard_normal(1 << 18).astype("f4")
    given = torch.tensor(a)
    with li.compile(li.Graph("double", [x], {"y": x * 2.0, "x": x})) as exe:
        out = exe(x=given)
        np.testing.assert_array_equal(out["y"], a * 2)
        out["x"][:] = 0
    np.testing.assert_array_equal(given.numpy(), a)


def test_operators_between_tensors_and_values(seed: int) -> None:
    need("torch")
    need("jax")
    import jax
    import torch

    a = numbers("f32", seed)
    x = li.input("x", (5, 3))
    b = np.ones((5, 3), "f4")
    for make in (torch.tensor, lambda v: torch.nn.Parameter(torch.tensor(v)), jax.numpy.asarray):
        g = make(a)
        graph = li.Graph("g", [x], {"l": g + x, "r": x - g, "p": li.dense(x, g)})
        out = li.interpret(graph, x=b)
        np.testing.assert_allclose(out["l"], a + b, rtol=1e-6)
        np.testing.assert_allclose(out["r"], b - a, rtol=1e-6)
        np.testing.assert_allclose(out["p"], b @ a.T, rtol=1e-5)


class Elsewhere:
    """An array that another library keeps on a device."""

    dtype = np.dtype("f4")

    def __init__(self, device: int) -> None:
        self.device = device

    def __dlpack__(self, **_: object) -> object:
        raise AssertionError("asked for memory of a device")

    def __dlpack_device__(self) -> tuple[int, int]:
        return (self.device, 0)


class Broken(Elsewhere):
    """An array whose library fails."""

    def __dlpack_device__(self) -> tuple[int, int]:
        raise RuntimeError("the array was deleted\nand more")


REFUSED: dict[str, Callable[[], Any]] = {
    "cuda": lambda: Elsewhere(2),
    "unknown_device": lambda: Elsewhere(99),
    "broken": lambda: Broken(1),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_elsewhere_is_refused_word_for_word(name: str, golden: Golden) -> None:
    said = []
    for error, use in (
        (li.CallError, lambda a: take(Conform("x", DType.f32), a)),
        (li.IRError, lambda a: li.weight("w", a)),
        (li.IRError, li.constant),
    ):
        with pytest.raises(error) as caught:
            use(REFUSED[name]())
        said.append(re.sub(r"(?<=test_foreign_arrays\.py:)\d+", "N", str(caught.value)))
    assert said[1].removeprefix("weight 'w'") == said[2].removeprefix("constant")
    golden(f"foreign_arrays/{name}.txt", "\n".join(said[:2]))


def test_tensors_that_are_no_dense_array_are_refused() -> None:
    need("torch")
    import torch

    wrong = [
        torch.ones(3, device="meta"), torch.ones(3).to_sparse(), torch.ones(3, dtype=torch.complex64),
        torch.ones(3).to(torch.float8_e4m3fn), torch.ones(3, dtype=torch.int16), torch.ones(3, dtype=torch.float64),
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(li.CallError, match="x: expected f32"):
            take(Conform("x", DType.f32), given)
        if given.dtype is not torch.float64:
            with pytest.raises(li.IRError):
                li.weight("w", given)


def test_arrays_of_jax_that_are_no_dense_array_are_refused() -> None:
    need("jax")
    import jax

    gone = jax.numpy.ones(3)
    gone.delete()
    for given in (gone, jax.numpy.ones(3, jax.numpy.complex64), jax.numpy.ones(3, jax.numpy.int4), jax.random.key(0)):
        with pytest.raises(li.IRError):
            li.weight("w", given)
        with pytest.raises(li.CallError, match="x: expected f32"):
            take(Conform("x", DType.f32), given)

    def traced(x: Any) -> Any:
        with pytest.raises(li.IRError):
            li.weight("w", x)
        return x

    jax.jit(traced)(jax.numpy.ones(3))


def test_no_library_is_imported_for_it() -> None:
    code = """
import sys, numpy as np, lstm_ir as li
class T:
    dtype = np.dtype('f4')
    a = np.arange(3, dtype='f4')
    def __dlpack__(self, **k): return self.a.__dlpack__()
    def __dlpack_device__(self): return self.a.__dlpack_device__()
assert (li.weight('w', T()).node.attrs['value'].array == T.a).all()
assert not {'torch', 'jax', 'tensorflow'} & set(sys.modules)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
