"""The recorded programs of tests/data/cells as graphs: JAX's jaxprs, PyTorch's exported graphs.

The texts are what other systems made of their own cells: what `fuse-cell` must recognise.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

from paths import DATA

import lstm_ir as li
from lstm_ir.ops.scan.node import scan_node

CELLS = DATA / "cells"
Env = dict[str, li.Value]


def read(name: str) -> li.Graph:
    """The recorded program `name` as a graph; its inputs are in0, in1, ... or PyTorch's names."""
    text = (CELLS / f"{name}.txt").read_text()
    return _torch(text) if name.startswith("torch") else _jax(text)


def names() -> list[str]:
    """Every recorded program."""
    return sorted(p.stem for p in CELLS.glob("*.txt"))


# jaxpr ------------------------------------------------------------------------------------------

_VAR = re.compile(r"(\w+):(\w+)\[([\d,]*)\]")
_EQN = re.compile(r"(.*?) = (\w+)(?:\[(.*?)\])? ([^\[\]]*)$", re.DOTALL)


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(d) for d in text.split(",") if d)


def _jax(text: str) -> li.Graph:
    body_text = re.search(r"let jaxpr = (\{.*?\}) in\n", text, re.DOTALL)
    main = text[body_text.end() :] if body_text else text.partition("\n")[2]
    inputs, equations, results = _parts(main)
    params = [li.input(f"in{i}", _shape(s), d) for i, (_, d, s) in enumerate(inputs)]
    env = dict(zip((n for n, _, _ in inputs), params, strict=True))
    for eqn in equations:
        _equation(eqn, env, body_text.group(1) if body_text else "")
    outputs = {f"y{i}": env[r] for i, r in enumerate(results)}
    return li.Graph("jaxpr", params, outputs)


def _parts(text: str) -> tuple[list[tuple[str, str, str]], list[str], list[str]]:
    m = re.search(r"\{ lambda ; (.*?)\. let(.*)\bin \((.*?)\) \}", text, re.DOTALL)
    assert m is not None
    results = [r.strip() for r in m.group(3).split(",") if r.strip()]
    return [v.groups() for v in _VAR.finditer(m.group(1))], list(_joined(m.group(2))), results  # type: ignore[misc]


def _joined(text: str) -> Iterator[str]:
    """Equations, one per string: a new one starts with variables and `=` outside of brackets."""
    depth, current = 0, ""
    for line in filter(None, map(str.strip, text.splitlines())):
        fresh = depth == 0 and " = " in line and re.match(r"\w+:", line) is not None
        if fresh and " = " in current:
            yield current
            current = ""
        current += " " + line if current else line
        depth += line.count("[") + line.count("(") - line.count("]") - line.count(")")
    yield current


def _equation(text: str, env: Env, body: str) -> None:
    left, right = text.split(" = ", 1)
    targets = [t.split(":")[0] for t in left.split()]
    op, attrs, args = _split(right)
    values = [_atom(a, env) for a in args]
    if op == "scan":
        made = _scan(attrs, values, body)
    else:
        made = _OPS[op](attrs, values)
    for name, v in zip(targets, made if isinstance(made, list) else [made], strict=True):
        if name != "_":
            env[name] = v


def _split(text: str) -> tuple[str, str, list[str]]:
    """op[attributes] arguments."""
    m = re.match(r"(\w+)", text)
    assert m is not None
    rest = text[m.end() :]
    attrs = ""
    if rest.startswith("["):
        depth = 0
        for i, c in enumerate(rest):
            depth += (c == "[") - (c == "]")
            if depth == 0:
                attrs, rest = rest[1:i], rest[i + 1 :]
                break
    return m.group(1), attrs, rest.split()


def _atom(text: str, env: Env) -> li.Value:
    m = re.fullmatch(r"([-\d.]+):(\w+)\[\]", text)
    return li.constant(float(m.group(1)), m.group(2)) if m else env[text]


def _ints(attrs: str, key: str) -> tuple[int, ...]:
    m = re.search(rf"{key}=\(([^)]*)\)", attrs.replace("np.int64(", "").replace("),", ",").replace("))", ")"))
    assert m is not None, (key, attrs)
    return tuple(int(d) for d in m.group(1).split(",") if d.strip())


def _int(attrs: str, key: str) -> int:
    m = re.search(rf"{key}=(\d+)", attrs)
    assert m is not None
    return int(m.group(1))


def _dot(attrs: str, v: list[li.Value]) -> li.Value:
    assert "(([1], [0]), ([], []))" in attrs
    return li.dot_general(v[0], v[1], ((1,), (0,)))


def _pieces(attrs: str, v: list[li.Value]) -> list[li.Value]:
    axis = _int(attrs, "axis")
    sizes = _ints(attrs[attrs.index("sizes") :], "sizes")
    out, at = [], 0
    for n in sizes:
        low, high = [0] * v[0].rank, list(v[0].shape)
        low[axis], high[axis] = at, at + n
        out.append(li.slice(v[0], low, high))
        at += n
    return out


def _broadcast(attrs: str, v: list[li.Value]) -> li.Value:
    if v[0].rank == 0:  # the recorded text leaves the shape out; every such row is [3, 7]
        return li.broadcast_in_dim(v[0], (3, 7), ())
    return li.broadcast_in_dim(v[0], (1, *v[0].shape), (1,))


def _sum(_: str, v: list[li.Value]) -> li.Value:
    return li.add(v[0], v[1])


_OPS: dict[str, Callable[[str, list[li.Value]], Any]] = {
    "dot_general": _dot, "add": _sum,
    "sub": lambda a, v: li.subtract(*v), "mul": lambda a, v: li.multiply(*v),
    "logistic": lambda a, v: li.logistic(v[0]), "tanh": lambda a, v: li.tanh(v[0]),
    "broadcast_in_dim": _broadcast, "split": _pieces,
    "squeeze": lambda a, v: li.squeeze(v[0], _ints(a, "dimensions")),
    "slice": lambda a, v: li.slice(v[0], _ints(a, "start_indices"), _ints(a, "limit_indices")),
    "transpose": lambda a, v: li.transpose(v[0], _ints(a, "permutation")),
    "concatenate": lambda a, v: li.concat(v, _int(a, "dimension")),
}  # fmt: skip


def _scan(attrs: str, values: list[li.Value], text: str) -> list[li.Value]:
    consts, carries = _int(attrs, "num_consts"), _int(attrs, "num_carry")
    inputs, equations, results = _parts(text)
    step = li.input("step", (), "i32")
    params = [li.input(f"p{i}", _shape(s), d) for i, (_, d, s) in enumerate(inputs)]
    env = dict(zip((n for n, _, _ in inputs), params, strict=True))
    for eqn in equations:
        _equation(eqn, env, "")
    body = li.Graph("cell", [step, *params], [env[r] for r in results])
    xs = tuple(values[consts + carries :])
    flags = (False,) * (len(xs) + len(results) - carries)
    node = scan_node(
        body, tuple(values[:consts]), tuple(values[consts : consts + carries]), xs,
        length=_int(attrs, "length"), reverse=flags,
    )  # fmt: skip
    return list(node.values)


# torch.export -----------------------------------------------------------------------------------


def _torch(text: str) -> li.Graph:
    env: dict[str, Any] = {}
    params: list[li.Value] = []
    outputs: list[str] = []
    for line in text.splitlines()[1:]:
        m = re.match(r"return \((.*?),?\)$", line)
        if m:
            outputs = [o.strip() for o in m.group(1).split(",") if o.strip()]
            continue
        name, kind, right = re.match(r"(\w+): (.*?) = (.*)", line).groups()  # type: ignore[union-attr]
        if right.startswith("parameter") or right == "user_input":
            dims = re.search(r"\[(.*)\]", kind)
            assert dims is not None
            env[name] = li.input(name, _shape(dims.group(1).replace(" ", "")))
            params.append(env[name])
        else:
            env[name] = _torch_call(right, env)
    return li.Graph("exported", params, {o: env[o] for o in outputs})


def _torch_call(text: str, env: dict[str, Any]) -> Any:
    m = re.match(r"(?:<built-in function (\w+)>|aten\.(\w+)\.\w+)\((.*)\)$", text)
    assert m is not None, text
    args = eval(f"({m.group(3)},)", {"__builtins__": {}}, env)
    return _TORCH[m.group(1) or m.group(2)](*args)


def _cut(v: li.Value, axis: int, low: int, high: int) -> li.Value:
    lows, highs = [0] * v.rank, list(v.shape)
    lows[axis], highs[axis] = low, high
    return li.slice(v, lows, highs)


def _split_sizes(v: li.Value, sizes: list[int], axis: int) -> list[li.Value]:
    ends = [sum(sizes[: i + 1]) for i in range(len(sizes))]
    return [_cut(v, axis, e - n, e) for e, n in zip(ends, sizes, strict=True)]


_TORCH: dict[str, Callable[..., Any]] = {
    "slice": _cut, "squeeze": lambda v, axes: li.squeeze(v, axes),
    "unsqueeze": lambda v, axis: li.expand_dims(v, axis),
    "view": lambda v, shape: li.reshape(v, shape),
    "permute": lambda v, order: li.transpose(v, order), "addmm": lambda b, x, w: li.dot(x, w) + b,
    "add": li.add, "sub": li.subtract, "mul": li.multiply, "sigmoid": li.logistic, "tanh": li.tanh,
    "split_with_sizes": _split_sizes, "getitem": lambda v, i: v[i],
    "cat": lambda vs: li.concat(vs, 0),
}  # fmt: skip
