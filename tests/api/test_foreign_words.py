"""What users of other libraries type: names of arguments, methods of arrays, operands in another form."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from device import need

import lstm_ir as li
from lstm_ir.ops import foreign_names

any_: Any = li
any_np: Any = np
X, A, V = li.input("x", ("T", "B", 5)), li.input("a", (3, 5)), li.input("v", (4, 3, 5))
ONES = np.ones((3, 5), "f4")
W, R = np.ones((28, 5), "f4"), np.ones((28, 7), "f4")
any_x: Any = X
G, ADAM = li.Graph("g", [A], {"y": li.sum(A)}), li.adam(1e-3)
WORDS: dict[str, tuple[Callable[[], object], str]] = {
    "b_ih": (lambda: any_.lstm(X, W, R, b_ih=W, b_hh=W), "no argument 'b_ih' or 'b_hh'. Say b = b_ih + b_hh"),
    "bias": (lambda: any_.gru(X, W, R, bias=W), "Say b, an array"),
    "bidirectional": (lambda: any_.rnn(X, W, R, bidirectional=True), 'Say direction="bidirectional"'),
    "batch_first": (lambda: any_.lstm(X, W, R, batch_first=True), 'Say layout="batch"'),
    "hidden_size": (lambda: any_.lstm_stack(X, [], hidden_size=3), "Say nothing, the sizes are those of w_ih"),
    "dim": (lambda: any_.sum(X, dim=1), "Did you mean axis?"),
    "keepdim": (lambda: any_.mean(X, 1, keepdim=True), "Did you mean keepdims?"),
    "eps": (lambda: any_.layer_norm(A, eps=1e-3), "Did you mean epsilon?"),
    "p": (lambda: any_.dropout(A, p=0.1, key=1), "Did you mean rate?"),
    "metrics": (lambda: any_.train_step(G, "y", ADAM, metrics=["z"]), "Say outputs, names of outputs"),
    "max_grad_norm": (lambda: any_.train_step(G, "y", ADAM, max_grad_norm=1.0), "Say clip_norm"),
    "eval": (lambda: any_.train_step(G, "y", ADAM, eval=True), "Say evaluate=True"),
    "accumulation_steps": (lambda: any_.train_step(G, "y", ADAM, accumulation_steps=2), "Say accumulate"),
    "n_epochs": (lambda: any_.fit(G, [], n_epochs=2), "fit: there is no argument 'n_epochs'. Say epochs"),
    "verbose": (lambda: any_.fit(G, [], verbose=0), "Say progress"),
    "callbacks": (lambda: any_.fit(G, [], callbacks=[]), "Say log, checkpoint, patience or every"),
    "batch_size": (lambda: any_.fit(G, [], batch_size=8), "already cut into batches"),
    "validation_data": (lambda: any_.fit(G, [], validation_data=[]), "Say validation"),
    "argnums": (lambda: any_.grad(G, "y", argnums=0), "grad: there is no argument 'argnums'. Say wrt"),
    "grad of too few": (lambda: any_.grad(G), "missing a required argument: 'of'; it is grad(graph, of, wrt"),
    "remta": (lambda: any_.vjp(G, "y", "a", remta=1), "vjp: there is no argument 'remta'. Did you mean remat?"),
    "states": (lambda: any_.stateful(G, states={}), "stateful: there is no argument 'states'. Say state"),
    "carry": (lambda: any_.over_time(G, carry={}), "over_time: there is no argument 'carry'. Say state"),
    "rtol": (lambda: any_.verify(G, rtol=1e-5), "verify: there is no argument 'rtol'. Say relative"),
    "state_dict": (lambda: any_.with_weights(G, state_dict={}), "Say weights"),
    "pipline": (lambda: any_.lower(G, pipline="x"), "lower: there is no argument 'pipline'. Did you mean pipeline?"),
    "key of a package": (lambda: any_.source("m.lirpkg", key="k"), "Say require_key"),
    "threads": (lambda: any_.set_threads(threads=2), "set_threads: there is no argument 'threads'. Say n"),
    "output of a graph": (lambda: any_.Graph("g", [A], output={}), "Graph: there is no argument 'output'. Say outputs"),
    "states of a program": (lambda: any_.Program("p", {}, states={}), "Program: there is no argument 'states'. Say"),
    "a method's dim": (lambda: any_x.sum(dim=0), "sum: there is no argument 'dim'. Did you mean axis?"),
    "a method's keepdim": (lambda: any_x.mean(0, keepdim=True), "Did you mean keepdims?"),
    "a method's min": (lambda: any_x.clip(min=0), "Did you mean low?"),
    "squeeze's dim": (lambda: any_x.squeeze(dim=0), "squeeze: there is no argument 'dim'. Did you mean axis?"),
    "from_logits": (lambda: any_.cross_entropy(A, ONES, from_logits=True), "Say nothing, it takes logits"),
    "ignore_index": (lambda: any_.cross_entropy(A, ONES, ignore_index=0), "Say mask, such as labels != -100"),
    "padding_mode": (lambda: any_.conv1d(V, ONES, padding_mode="reflect"), "Say it to li.pad"),
    "mask of a layer": (lambda: any_.lstm(X, W, R, mask=ONES), "Say lengths, the steps of each row"),
    "linear_before_reset": (lambda: any_.gru(X, W, R, linear_before_reset=1), "Say reset_after"),
    "clipnorm": (lambda: any_.adam(1e-3, clipnorm=1.0), "Say clip_norm to li.train_step"),
    "batch_size of a batcher": (
        lambda: any_.Batcher(G, batch_size=8),
        "Batcher: there is no argument 'batch_size'. Say max_batch, rows",
    ),
    "timeout of a batcher": (lambda: any_.Batcher(G, timeout=1), "Say max_delay, seconds"),
    "ttl of sessions": (
        lambda: any_.Sessions(G, ttl=1),
        "Sessions: there is no argument 'ttl'. Say idle_timeout, seconds",
    ),
    "max_sesions": (lambda: any_.Sessions(G, max_sesions=1), "Did you mean max_sessions?"),
    "running_mean": (lambda: any_.batch_norm(A, running_mean=ONES), "Did you mean mean?"),
    "running_var": (lambda: any_.batch_norm(A, running_var=ONES), "Did you mean var?"),
    "b of a convolution": (lambda: any_.conv1d(V, ONES, b=ONES), "Did you mean bias?"),
    "a typing error": (lambda: any_.softmax(A, axsi=1), "Did you mean axis?"),
    "an unknown word": (lambda: any_.relu(A, zzz=1), "no argument 'zzz'; they are x"),
    "too few": (lambda: any_.relu(), "missing a required argument: 'x'; it is relu(x)"),
    "too many": (lambda: any_.relu(A, 1, 2), "too many positional arguments; it is relu(x)"),
    "seed for a key": (lambda: li.random_normal(0, (3,)), "li.random_key(0) makes a key"),
    "floats for ids": (lambda: li.embedding(np.ones((4, 2), "f4"), A), "embedding: ids are f32[3,5], not integers"),
    "ids first": (lambda: li.embedding(np.ones((2, 3), "i4"), A), "The other way round?"),
    "concat": (lambda: any_.concat(A, A), "takes a list of values: li.concat([x, y])"),
    "stack": (lambda: any_.stack(A, A), "takes a list of values: li.stack([x, y])"),
    "right matrix": (lambda: A @ np.ones((7, 5), "f4"), "and 7 (rhs axis 0). Transposed? the right one (rhs.T)"),
    "left matrix": (lambda: li.matmul(A, np.ones((3, 7), "f4")), "Transposed? the left one (lhs.T)"),
    "batched": (lambda: V @ li.input("w", (4, 7, 5)), "Transposed? the right one (li.swapaxes(rhs, -1, -2))"),
    "no way round": (lambda: A @ np.ones((7, 2), "f4"), "5 (lhs axis 1) and 7 (rhs axis 0)\n"),
}


@pytest.mark.parametrize("name", WORDS)
def test_our_word_is_said(name: str) -> None:
    case, said = WORDS[name]
    with pytest.raises(li.IRError) as caught:
        case()
    assert said in str(caught.value)
    assert "test_foreign_words.py:" in str(caught.value)


def test_what_is_advised_works() -> None:
    r = np.ones((28, 7), "f4")
    assert li.lstm(X, W, r, W.sum(1) + W.sum(1), direction="reverse", layout="batch").y.rank == 3
    assert li.random_normal(li.random_key(0), (3,)).shape == (3,)
    assert (A @ np.ones((7, 5), "f4").T).shape == (3, 7)
    assert (V @ li.swapaxes(li.input("w", (4, 7, 5)), -1, -2)).shape == (4, 3, 7)
    assert li.concat([A, A]).shape == (6, 5)


def test_an_argument_error_is_a_type_error_too() -> None:
    with pytest.raises(TypeError) as caught:
        any_.sum(X, dim=1)
    assert isinstance(caught.value, li.ArgumentError)


def test_a_type_error_inside_a_cell_stays_what_it_is() -> None:
    def cell(carry: Any, x: Any) -> Any:
        raise TypeError("of the user's")

    with pytest.raises(TypeError, match="of the user's") as caught:
        li.scan(cell, A[0], A)
    assert not isinstance(caught.value, li.LstmIrError)


def test_signatures_are_those_of_the_builders() -> None:
    assert list(inspect.signature(li.sum).parameters) == ["x", "axis", "keepdims"]
    assert li.sum.__name__ == "sum"
    assert li.sum.__doc__


METHODS: dict[str, Callable[[Any], Any]] = {
    "sum": lambda x: x.sum(1), "mean": lambda x: x.mean(axis=0), "max": lambda x: x.max(), "min": lambda x: x.min(1),
    "prod": lambda x: x.prod(1, keepdims=True), "std": lambda x: x.std(1), "var": lambda x: x.var(1, ddof=1),
    "any": lambda x: (x > 1).any(), "all": lambda x: (x > -9).all(1), "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(0), "cumsum": lambda x: x.cumsum(1), "clip": lambda x: x.clip(-1.0, 0.5),
    "round": lambda x: x.round(), "squeeze": lambda x: x[:1].squeeze(0), "swapaxes": lambda x: x.swapaxes(0, 1),
    "transpose": lambda x: x.transpose(), "transpose of axes": lambda x: x.transpose(1, 0),
    "transpose of a tuple": lambda x: x.transpose((1, 0)), "ndim": lambda x: x * x.ndim,
}  # fmt: skip


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_numpys(name: str, seed: int) -> None:
    a = np.random.default_rng(seed).standard_normal((3, 5))
    want = METHODS[name](a)
    x = li.input("x", (3, 5), "f64")
    got = li.interpret(li.Graph("g", [x], {"y": METHODS[name](x)}), x=a)["y"]
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert got.shape == want.shape


MEMBERS = {
    "exp": "write li.exp(x, ...)",
    "size": "write x.shape, whose sizes may be names; li.dim(x, axis)",
    "view": "write li.reshape(x, ...)",
    "float": 'write x.astype("f32")',
    "trunc": "write li.where(x < 0, li.ceil(x), li.floor(x))",
    "zeros": "li.zeros(shape, dtype) is a function",
    "repeat": "write li.repeat(x, repeats, axis), NumPy's; PyTorch's repeat is li.tile(x, reps)",
    "item": "a value has no numbers before a call",
    "foo": "no attribute 'foo'",
}


@pytest.mark.parametrize("name", MEMBERS)
def test_members_of_arrays_are_named(name: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(MEMBERS[name])):
        getattr(A, name)
    assert not hasattr(A, "__array__")


NAMES = {
    "cat": "; it is li.concat", "concatenate": "; it is li.concat", "unsqueeze": "; it is li.expand_dims",
    "permute": "; it is li.transpose", "mul": "; it is li.multiply",
    "pow": "; it is li.power", "LSTM": "; did you mean li.lstm?", "softmx": "; did you mean li.softmax",
    "flatten": "; write li.reshape(x, (-1,))", "huber_loss": "; write li.mean(li.where(li.abs(x - y) < 1, ",
    "L1Loss": "; write li.mean(li.abs(x - y))", "EarlyStopping": "; write li.fit(program, batches, epochs=n, ",
    "GRUCell": "; it is li.gru", "clip_grad_norm_": "; write li.train_step(graph, loss, optimizer, clip_norm=1.0)",
    "pack_padded_sequence": "lengths=lengths), x padded", "save_state": "; write exe.save_state(path)",
    "zzzzzz": "no attribute 'zzzzzz'",
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_names_of_other_libraries_are_told(name: str) -> None:
    with pytest.raises(AttributeError, match=re.escape(NAMES[name])):
        getattr(li, name)


@pytest.mark.parametrize("name", ["hubert", "outhouse", "mat", "nnn", "Masks", "Valuation", "int32", "histogram"])
def test_what_is_like_no_name_is_told_none(name: str) -> None:
    with pytest.raises(AttributeError, match=f"has no attribute '{name}'$"):
        getattr(li, name)


def test_formulas_of_losses_are_those_of_torch(seed: int) -> None:
    need("torch")
    import torch

    rng = np.random.default_rng(seed)
    a, b = rng.standard_normal((2, 3, 5)).astype("f4") * 2
    x, y = A, li.input("y", (3, 5))
    f, ta, tb = torch.nn.functional, torch.tensor(a), torch.tensor(b)
    want = {
        "huber": f.huber_loss(ta, tb), "mae": f.l1_loss(ta, tb), "rmse": f.mse_loss(ta, tb).sqrt(),
        "bce": f.binary_cross_entropy_with_logits(ta, tb), "median": ta.kthvalue(3).values,
    }  # fmt: skip
    formulas = {n: foreign_names._WRITTEN[n].partition(", ")[0] for n in ("bce", "median")}
    formulas["median"] = foreign_names._WRITTEN["median"].rpartition(", ")[0]
    formulas |= {n: foreign_names._WRITTEN[n] for n in ("huber", "mae", "rmse")}
    made = {n: eval(t, {"li": li, "x": x, "y": y, "k": 2}) for n, t in formulas.items()}
    got = li.interpret(li.Graph("g", [x, y], made), a=a, y=b)
    for name, expected in want.items():
        np.testing.assert_allclose(got[name], expected.numpy(), rtol=1e-5, atol=1e-6, err_msg=name)


def test_what_tables_name_exists() -> None:
    called, written = set(foreign_names._CALLED), set(foreign_names._WRITTEN)
    assert not (called | written) & set(li.__all__)
    assert not called & written
    assert set(foreign_names._CALLED.values()) <= set(li.__all__)
    said = " ".join((*foreign_names._WRITTEN.values(), *foreign_names._OF_VALUES.values()))
    assert set(re.findall(r"li\.(\w+)", said)) <= set(li.__all__)
    assert all(hasattr(A, n) for n in re.findall(r"\bx\.(\w+)", said))
    assert not [n for n in foreign_names._OF_VALUES if hasattr(A, n)]


NUMPY: dict[str, Callable[[], object]] = {
    "numpy.log: numpy takes arrays, not values of a graph; write li.log": lambda: any_np.log(A),
    "numpy.isnan: numpy takes arrays, not values of a graph; it is li.is_nan": lambda: any_np.isnan(A),
    "numpy.concatenate: numpy takes arrays, not values of a graph; it is li.concat": lambda: any_np.concatenate([A, A]),
    "numpy.sum: numpy takes arrays, not values of a graph; write li.sum": lambda: any_np.sum(A),
    "numpy.add.reduce: numpy takes arrays": lambda: any_np.add.reduce(A),
    "numpy.add: numpy takes arrays": lambda: any_np.add(ONES, A, out=ONES),
}


@pytest.mark.parametrize("said", NUMPY)
def test_numpys_functions_are_told(said: str) -> None:
    with pytest.raises(li.IRError, match=re.escape(said)) as caught:
        NUMPY[said]()
    assert "test_foreign_words.py:" in str(caught.value)


OPERATORS: dict[str, Callable[[Any, Any], Any]] = {
    "+": lambda a, x: a + x, "-": lambda a, x: a - x, "*": lambda a, x: a * x, "/": lambda a, x: a / x,
    "//": lambda a, x: a // x, "**": lambda a, x: a**x, "@": lambda a, x: a @ x.T, "==": lambda a, x: a == x,
    "!=": lambda a, x: a != x, "<": lambda a, x: a < x, "<=": lambda a, x: a <= x, ">": lambda a, x: a > x,
    ">=": lambda a, x: a >= x, "&": lambda a, x: (a > 1) & (x > 1), "|": lambda a, x: (a > 1) | (x > 1),
    "^": lambda a, x: (a > 1) ^ (x > 1), "number": lambda a, x: a[0, 0] * x,
}  # fmt: skip


@pytest.mark.parametrize("sign", OPERATORS)
def test_an_array_on_the_left_of_an_operator(sign: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0.5, 2, (2, 3, 5))
    b[0] = a[0]
    x = li.input("x", (3, 5), "f64")
    got = li.interpret(li.Graph("g", [x], {"y": OPERATORS[sign](a, x)}), x=b)["y"]
    np.testing.assert_allclose(got, OPERATORS[sign](a, b), rtol=1e-12)


BOOLEANS: dict[str, Callable[[], object]] = {
    'the number 1.0 is no i1; li.convert(x, "f32") makes floats': lambda: 1.0 - (A > 0),
    'takes float or integer elements, got i1; li.convert(x, "f32") converts; & | ^ ~ take': lambda: 1 - (A > 0),
    'lhs is i1, rhs f32; convert one of them: li.convert(lhs, "f32")': lambda: (A > 0) * A,
    "takes integer or boolean (i1) elements, got f32; x != 0 gives booleans": lambda: ~A,
    'takes numbers, got i1; li.convert(x, "i32") converts': lambda: li.sum(A > 0),
}


@pytest.mark.parametrize("said", BOOLEANS)
def test_arithmetic_of_booleans_is_told(said: str) -> None:
    with pytest.raises(li.IRError, match=re.escape(said)):
        BOOLEANS[said]()


I32, HALF = li.input("i", (3, 5), "i32"), li.input("half", (3, 5), "f16")
DTYPES: dict[str, Callable[[], object]] = {
    "compare: rhs is a float64 number of NumPy among values of f32; write float(rhs)\n"
    "  operands: lhs: f32[3,5], rhs: f64[]\n": lambda: A > np.quantile(ONES, 0.5).astype("f8"),
    "multiply: lhs is a float64 number of NumPy among values of f16; write float(lhs)": lambda: np.float64(2) * HALF,
    "select: on_false is a float64 number of NumPy": lambda: li.where(A > 0, A, np.float64(0)),
    "add: rhs is an int64 number of NumPy among values of i32; write int(rhs)": lambda: I32 + np.array(3),
    'add: rhs is a float64 array of NumPy among values of f32; write li.constant(rhs, "f32")': lambda: A + np.ones(5),
    "mod: b is a float64 number of NumPy": lambda: A % np.float64(2),
    'lhs is i32, rhs i64; convert one of them: li.convert(lhs, "i64")': lambda: I32 < li.input("l", (5,), "i64"),
    'lhs is f32, rhs f16; convert one of them: li.convert(rhs, "f32")': lambda: A + HALF,
    'lhs is i32, rhs f64; convert one of them: li.convert(lhs, "f64")': lambda: I32 + np.float64(1),
    "lhs is f16, rhs bf16; convert one of them\n": lambda: HALF + li.input("b", (5,), "bf16"),
    "lhs is i32, rhs u32; convert one of them\n": lambda: I32 + li.input("u", (5,), "u32"),
}


@pytest.mark.parametrize("said", DTYPES)
def test_operands_of_two_dtypes_are_told(said: str) -> None:
    with pytest.raises(li.IRError, match=re.escape(said)):
        DTYPES[said]()


def _stored(x: Any) -> None:
    x[0] = 1.0


PYTHONS: dict[str, Callable[[], object]] = {
    "write & | ~ for and, or, not, li.where(c, x, y) for x if c else y": lambda: (A > 0) and (A < 1),
    "no truth value before a call": lambda: 1 if any_x else 2,
    "no numbers before a call; float(x) is x.astype('f32')": lambda: float(any_x),
    "no numbers before a call; int(x) is x.astype('i32')": lambda: int(any_x),
    "not written into; another one is made: li.where(mask, new, x), li.put_along_axis(": lambda: _stored(A),
}


@pytest.mark.parametrize("said", PYTHONS)
def test_what_python_asks_of_numbers_is_told(said: str) -> None:
    with pytest.raises(TypeError, match=re.escape(said)):
        PYTHONS[said]()


def test_an_element_type_that_libraries_read_in_two_ways_is_refused() -> None:
    with pytest.raises(li.IRError, match=re.escape("write 'f64' or 'f32'")):
        A.astype("float")
    kinds = [str(A.astype(t).dtype) for t in (float, np.float64, "double", "half", "float32")]
    assert kinds == ["f64", "f64", "f64", "f16", "f32"]


def test_a_part_is_written_as_advised(seed: int) -> None:
    a = np.random.default_rng(seed).standard_normal((3, 5)).astype("f4")
    places = np.zeros((1, 5), np.int32)
    ways = {
        "where": li.where(np.arange(3)[:, None] == 0, 1.0, A),
        "put": li.put_along_axis(A, places, np.ones((1, 5), "f4"), 0),
        "part": li.dynamic_update_slice(A, np.ones((1, 5), "f4"), (0, 0)),
    }
    a[0] = 1.0
    for name, got in li.interpret(li.Graph("g", [A], ways), a=a).items():
        np.testing.assert_array_equal(got, a, err_msg=name)


def test_numbers_of_numpy_as_they_are_advised() -> None:
    for x in (A + float(np.float64(2)), A * int(np.int64(2)), A + li.constant(np.ones(5), "f32")):
        assert str(x.dtype) == "f32"


def test_a_size_as_an_operand_is_told() -> None:
    t, said = X.shape[0], "an operand is the size T; li.convert(li.size('T'), \"f32\") is its value"
    with pytest.raises(li.IRError, match=re.escape(said)):
        _ = X / t
    with pytest.raises(li.IRError, match=re.escape(said)):
        _ = t * X
    with pytest.raises(li.IRError, match=re.escape("li.dim(x, axis) is one of them")):
        any_.size(X)
    g = li.Graph("g", [X], {"y": li.sum(X) / li.convert(li.size("T"), "f32")})
    got = li.interpret(g, x=np.ones((4, 2, 5), "f4"))
    np.testing.assert_allclose(got["y"], 10.0)
