"""Random bits and dropout masks: known answers, statistics, the same bits on every target."""

from typing import Any

import cudnn_cases as cu
import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.ir.expansion import expansion
from lstm_ir.ops.nn import threefry

pytestmark = pytest.mark.slow_on("vulkan")
KNOWN = [  # key, counter, words: the answers published with Random123 for 20 rounds
    ((0, 0), (0, 0), (0x6B200159, 0x99BA4EFE)),
    ((2**32 - 1,) * 2, (2**32 - 1,) * 2, (0x1CB996FC, 0xBB002BE7)),
    ((0x13198A2E, 0x03707344), (0x243F6A88, 0x85A308D3), (0xC4923A9C, 0x483DF7A0)),
]
STEPS = (0, 1, -5, 2**31, 2**32 - 1, 2**40 + 3, 2**63 - 1)
KEY = np.array([7, 2**32 - 3], np.uint32)
ATTRS: dict[str, Any] = {"rnn_mode": "gru", "direction": "bidirectional", "dropout": 0.3, "seed": 5, "seed2": -9}


@pytest.mark.parametrize(("key", "counter", "words"), KNOWN)
def test_known_answers(key: Any, counter: Any, words: Any) -> None:
    got = threefry.folded(np.array(key, np.uint32), *counter)
    assert tuple(got) == words


def test_element_i_is_the_block_of_counter_i() -> None:
    """Whatever the shape; so a longer sequence keeps the bits of its beginning."""
    bits = threefry.THREEFRY.numpy(KEY, shape=(2, 3, 5))
    for i, word in enumerate(bits.ravel()):
        assert word == threefry.folded(KEY, i, 0)[0]


def test_all_64_bits_of_both_seeds_matter() -> None:
    numbers = [0, 1, -1, 2**32, 2**32 + 1, 2**63 - 1, -(2**63)]
    keys = {tuple(threefry.number_key(a, b)) for a in numbers for b in numbers}
    assert len(keys) == len(numbers) ** 2


def random_graphs() -> dict[str, li.Graph]:
    """Bits of a fixed shape, and of a named one under a key with a step folded in."""
    key, step, x = li.input("key", (2,), "u32"), li.input("step", (), "i64"), li.input("x", ("T",))
    folded = threefry.fold_in(key, step)
    bits = threefry.random_bits(folded, (2, "T", 3))
    outputs = {"bits": bits, "key": folded, "kept": threefry.drawn(bits, 0.3), "x": x}
    fixed = {"bits": threefry.random_bits(key, (3, 5, 7))}
    return {"fixed": li.Graph("fixed", [key], fixed), "named": li.Graph("named", [key, step, x], outputs)}


def same_bits(target: str) -> None:
    graphs = random_graphs()
    exe = li.compile(li.Program("bits", graphs), target)
    want = li.interpret(graphs["fixed"], key=KEY)
    np.testing.assert_array_equal(exe.entries["fixed"](key=KEY)["bits"], want["bits"])
    for step in STEPS:
        for T in (1, 11):
            a = {"key": KEY, "step": np.int64(step), "x": np.zeros(T, np.float32)}
            got, want = exe.entries["named"](a), li.interpret(graphs["named"], a)
            for k, v in want.items():
                np.testing.assert_array_equal(got[k], v, err_msg=f"{target} {step} {T} {k}")


def test_bits_on_the_cpu() -> None:
    same_bits("cpu")


@pytest.mark.vulkan
def test_bits_on_vulkan() -> None:
    need("vulkan")
    same_bits("vulkan")


def test_bits_of_the_expansion() -> None:
    g = random_graphs()["fixed"]
    other = g.replace(expansion(g.outputs[0].node, "expand"))
    want = li.interpret(g, key=KEY)["bits"]
    np.testing.assert_array_equal(li.interpret(other, key=KEY)["bits"], want)


@pytest.mark.parametrize("p", [0.0, 2.0**-33, 0.1, 0.5, 0.9, 1.0])
def test_statistics(p: float) -> None:
    """The share that is kept, neighbours on every axis, and other seeds are independent."""
    shape, n = (4, 50, 40, 25), 200_000
    draws = []
    for seeds in ((1, 2), (1, 3), (2, 2), (2, 1)):
        bits = threefry.THREEFRY.numpy(threefry.number_key(*seeds), shape=shape)
        draws.append(threefry.drawn(bits, p).astype(np.float64))
    bound = 5 * np.sqrt(max(p * (1 - p), 1e-9) / n) + 1e-9  # five standard deviations
    for draw in draws:
        assert abs(draw.mean() - (1 - p)) <= bound
    if p in (0.1, 0.5, 0.9):
        pairs = [(np.delete(draws[0], 0, k), np.delete(draws[0], -1, k)) for k in range(4)]
        pairs += [(draws[0], other) for other in draws[1:]]
        for a, b in pairs:
            assert abs(np.corrcoef(a.ravel(), b.ravel())[0, 1]) < 5 / np.sqrt(a.size)


def operands(rng: np.random.Generator, **attrs: Any) -> dict[str, Any]:
    return cu.operands(rng, 3, kind=np.float32, lengths=[11, 4, 1], **{**ATTRS, **attrs})


def masks(out: Any) -> Any:
    """keep of layers 0 and 1 in the reserve of a gru of two directions."""
    T, B, _, H = cu.SIZES
    per, wide = T * B * 2 * 4 * H, T * B * 2 * H
    r = out["reserve_space"]
    assert len(r) == 3 * per + 4 * wide
    first, second = per + wide, 2 * per + 3 * wide
    return np.stack([r[k : k + wide].reshape(T, B, 2 * H) for k in (first, second)])


def test_masks_are_a_pure_function_of_the_seeds(rng: np.random.Generator) -> None:
    a = operands(rng)

    def drawn(**more: Any) -> Any:
        step = more.pop("step", None)
        given = a if step is None else a | {"step": np.int64(step)}
        return masks(li.interpret(cu.graph(cu.FORWARD, given, ATTRS | more), given))

    first = drawn()
    assert set(np.unique(first)) == {0, 1}
    np.testing.assert_array_equal(drawn(), first)
    others = [drawn(seed=6), drawn(seed2=9), *(drawn(step=s) for s in (0, 1, 2, -1, 2**33))]
    for k, one in enumerate(others):
        for other in [first, *others[:k]]:
            assert 0.2 < float((one != other).mean()) < 0.65  # 0.42 where independent
    np.testing.assert_array_equal(drawn(step=1), others[3])


def test_time_major_and_type_do_not_change_the_draw(rng: np.random.Generator) -> None:
    a = operands(rng)
    first = masks(li.interpret(cu.graph(cu.FORWARD, a, ATTRS), a))
    turned = {k: np.swapaxes(v, 0, 1).copy() if v.ndim == 3 else v for k, v in a.items()}
    attrs = ATTRS | {"time_major": False}
    np.testing.assert_array_equal(masks(li.interpret(cu.graph(cu.FORWARD, turned, attrs), turned)), first)
    small = {k: v.astype(np.float16) if v.dtype == np.float32 else v for k, v in a.items()}
    kept = li.interpret(cu.graph(cu.FORWARD, small, ATTRS), small)["reserve_space"]
    np.testing.assert_array_equal(kept, first.ravel())  # half keeps the masks alone


def same_draws(target: str, rng: np.random.Generator) -> None:
    """A compiled step draws anew with every step number, and exactly what NumPy draws."""
    a = operands(rng)
    named = {"input": ("T", "B", 5), "sequence_lengths": ("B",), "input_h": (6, "B", 7)}
    g = cu.graph(cu.FORWARD, a | {"step": np.int64(0)}, ATTRS, named)
    exe = li.compile(g, target)
    for step in (0, 1, 2**32 + 1):
        given = a | {"step": np.int64(step)}
        got, want = exe(given), li.interpret(g, given)
        np.testing.assert_array_equal(masks(got), masks(want))
        cu.close(got, want, 2e-6, (target, step))


@pytest.mark.slow
def test_draws_on_the_cpu(rng: np.random.Generator) -> None:
    same_draws("cpu", rng)


@pytest.mark.vulkan
def test_draws_on_vulkan(rng: np.random.Generator) -> None:
    need("vulkan")
    same_draws("vulkan", rng)


@pytest.mark.parametrize("p", [0.3, 1.0])
def test_inference_does_not_depend_on_dropout(p: float, rng: np.random.Generator) -> None:
    a = operands(rng)
    off = ATTRS | {"is_training": False}
    want = li.interpret(cu.graph(cu.FORWARD, a, off | {"dropout": 0.0}), a)
    got = li.interpret(cu.graph(cu.FORWARD, a, off | {"dropout": p}), a)
    cu.close(got, want, 0.0, p)
    assert got["reserve_space"].shape == ()


def test_one_layer_has_nothing_to_drop(rng: np.random.Generator) -> None:
    a = cu.operands(rng, 1, **ATTRS)
    got = li.interpret(cu.graph(cu.FORWARD, a, ATTRS), a)
    want = li.interpret(cu.graph(cu.FORWARD, a, ATTRS | {"dropout": 0.0}), a)
    cu.close(got, want, 0.0, "one layer")
    assert not any(n.op.name == "threefry" for n in cu.expanded(cu.graph(cu.FORWARD, a, ATTRS)).nodes)
