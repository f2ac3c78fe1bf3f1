"""A program as a header for C: which functions its module has, what they take and give, in which order.

The header is C99, declares data and nothing else, and needs no header of IREE: element types are the numbers of
IREE's HAL. Names of a program may hold any character. They stand in strings, and identifiers made of them are
unique: what C does not take becomes `_`, and a name that is taken gets a number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from lstm_ir.ir.signature import Check, Entry, Port, Requirement, Signature
from lstm_ir.ir.types import DType, TensorType

HAL = {  # element types of IREE's HAL, and what C has for them; 16-bit floats have no type in C99
    DType.f16: (0x21000010, "uint16_t"), DType.bf16: (0x22000010, "uint16_t"), DType.f32: (0x21000020, "float"),
    DType.f64: (0x21000040, "double"), DType.i8: (0x11000008, "int8_t"), DType.u8: (0x12000008, "uint8_t"),
    DType.i32: (0x11000020, "int32_t"), DType.u32: (0x12000020, "uint32_t"), DType.i64: (0x11000040, "int64_t"),
    DType.i1: (0x13000008, "uint8_t"),
}  # fmt: skip
_TYPES = """\
#ifndef LIR_PACKAGE_TYPES
#define LIR_PACKAGE_TYPES

/* An array: dense, row by row, in a buffer view whose memory is aligned to 64 bytes. */
typedef struct lir_tensor {
  const char *name;         /* of the input, output, weight or state */
  const char *type;         /* as the package has it: f32[T,B,8] */
  const char *c_type;       /* of an element; f16 and bf16 are uint16_t, a boolean is a byte, 0 or 1 */
  uint32_t element_type;    /* iree_hal_element_type_t */
  size_t rank;
  const int64_t *shape;     /* rank sizes; -1 for one that a call determines */
  const char *const *sizes; /* the same as text: a number, a name, or an expression of names */
} lir_tensor;

/* A weight: a parameter of the scope lir_package.scope, found by its key. */
typedef struct lir_weight {
  lir_tensor tensor;
  const char *key;
} lir_weight;

/* A function of the module. It takes, in this order: the inputs; the state that it reads; if shares_work, a queue,
   which is a buffer view of LIR_QUEUE_BYTES bytes (int8, all 0), then two i32 values: the threads that share the work,
   and whether there are helpers. 1 and 0 are a call without helpers. It gives, in this order: the outputs;
   the state that it writes, which the caller keeps for the next call. It keeps nothing itself. */
typedef struct lir_entry {
  const char *name;
  const char *function;     /* in the module */
  size_t input_count;
  const lir_tensor *inputs;
  size_t read_count;
  const size_t *reads;      /* of lir_package.state */
  int shares_work;
  size_t output_count;
  const lir_tensor *outputs;
  size_t write_count;
  const size_t *writes;     /* of lir_package.state */
  size_t rule_count;
  const char *const *rules; /* what the caller has to see to: the module does not look */
} lir_entry;

typedef struct lir_package {
  const char *name;
  const char *iree;         /* the release whose runtime runs the module: its first two numbers */
  const char *target;       /* that the module is for */
  const char *triple;
  const char *features;     /* that a processor must have, with spaces between */
  const char *scope;
  size_t weight_count;
  const lir_weight *weights;
  size_t state_count;
  const lir_tensor *state;
  size_t entry_count;
  const lir_entry *entries;
} lir_package;

#endif
"""


@dataclass(frozen=True)
class HeaderModule:
    """What the header says of the module beside the program."""

    iree: str
    target: str
    triple: str
    features: Sequence[str]
    scope: str
    keys: Mapping[str, str]  # of weights, by name
    sharing: frozenset[str]  # entries whose kernels may share their work
    queue_bytes: int


@dataclass
class _Header:
    """Lines, and the identifiers that are taken: at first those of the types, which a file may be called like."""

    prefix: str
    lines: list[str] = field(default_factory=list)
    taken: set[str] = field(default_factory=lambda: set(re.findall(r"(?i)\blir_\w+", _TYPES)))

    def unique(self, *words: str) -> str:
        """An identifier of these words that no other has."""
        wanted = "_".join([self.prefix, *map(identifier, words)])
        found, number = wanted, 1
        while found in self.taken:
            number += 1
            found = f"{wanted}_{number}"
        self.taken.add(found)
        return found

    def array(self, kind: str, items: Sequence[str], *words: str) -> str:
        """The identifier of an array of these items; NULL without any: C has no empty arrays."""
        if not items:
            return "NULL"
        name = self.unique(*words)
        line = f"static const {kind} {name}[] = {{{', '.join(items)}}};"
        longer = [f"static const {kind} {name}[] = {{", *(f"  {i}," for i in items), "};"]
        self.lines += [line] if len(line) <= 120 else longer
        return name

    def tensor(self, name: str, t: TensorType, *words: str) -> str:
        """The initialiser of a lir_tensor."""
        element, c_type = HAL[t.dtype]
        sizes = [str(d) for d in t.shape]
        shape = self.array("int64_t", [str(d) if isinstance(d, int) else "-1" for d in t.shape], *words, "shape")
        texts = self.array("char *const", [quoted(s) for s in sizes], *words, "sizes")
        return (
            f"{{{quoted(name)}, {quoted(str(t))}, {quoted(c_type)}, 0x{element:08x}u, {t.rank}, {shape}, {texts}}}"
        )  # fmt: skip

    def ports(self, ports: Sequence[Port], *words: str) -> str:
        """An array of lir_tensor, and the places of its elements by name."""
        items = [self.tensor(p.name, p.type, *words, p.name) for p in ports]
        self.places([(p.name, i) for i, p in enumerate(ports)], *words)
        return self.array("lir_tensor", items, *words)

    def places(self, at: Sequence[tuple[str, int]], *words: str) -> None:
        """Numbers by name."""
        if at:
            names = [f"  {self.unique('at', *words, name)} = {i}," for name, i in at]
            self.lines += ["enum {", *names, "};"]


def c_header(stem: str, signature: Signature, module: HeaderModule) -> str:
    """The text of the header; what it declares begins with `lir_STEM`, and its package is `lir_STEM` itself.

    Where that is one of the types, the package has a number behind it: `lir_package_2`.
    """
    h = _Header(f"lir_{identifier(stem)}")
    package, guard = h.unique(), f"LIR_HEADER_{identifier(stem)}"
    weights = []
    for name, t in signature.weights.items():
        tensor = h.tensor(name, t, "weight", name)
        weights.append(f"{{{tensor}, {quoted(module.keys[name])}}}")
    held = h.array("lir_weight", weights, "weights")
    h.places([(n, i) for i, n in enumerate(signature.weights)], "weight")
    state = h.ports([Port(v.name, v.type) for v in signature.state.values()], "state")
    place = {n: i for i, n in enumerate(signature.state)}
    entries = [_entry(h, e, place, e.name in module.sharing) for e in signature.entries.values()]
    h.places([(n, i) for i, n in enumerate(signature.entries)], "entry")
    listed = h.array("lir_entry", entries, "entries")
    words = (signature.name, module.iree, module.target, module.triple, " ".join(module.features), module.scope)
    counts = f"{len(weights)}, {held}, {len(place)}, {state}, {len(entries)}, {listed}"
    whole = [f"static const lir_package {package} = {{", *(f"  {quoted(w)}," for w in words), f"  {counts},", "};"]
    head = [
        "/* Written by lstm-ir show --c: write it again with its package. */", f"#ifndef {guard}", f"#define {guard}",
        "", "#include <stddef.h>", "#include <stdint.h>", "", _TYPES, "#ifndef LIR_QUEUE_BYTES",
        f"#define LIR_QUEUE_BYTES {module.queue_bytes}", "#endif", "",
    ]  # fmt: skip
    return "\n".join([*head, *h.lines, *whole, "", "#endif", ""])


def _entry(h: _Header, e: Entry, place: Mapping[str, int], shares: bool) -> str:
    """The initialiser of a lir_entry."""
    inputs, outputs = h.ports(e.inputs, e.name, "in"), h.ports(e.outputs, e.name, "out")
    reads = h.array("size_t", [str(place[n]) for n in e.reads], e.name, "reads")
    writes = h.array("size_t", [str(place[n]) for n in e.writes], e.name, "writes")
    h.places([(n, len(e.inputs) + i) for i, n in enumerate(e.reads)], e.name, "in_state")
    h.places([(n, len(e.outputs) + i) for i, n in enumerate(e.writes)], e.name, "out_state")
    texts = list(rules(e))
    listed = h.array("char *const", [quoted(t) for t in texts], e.name, "rules")
    return (
        f"{{{quoted(e.name)}, {quoted(f'module.{e.name}')}, {len(e.inputs)}, {inputs}, {len(e.reads)}, {reads}, "
        f"{int(shares)}, {len(e.outputs)}, {outputs}, {len(e.writes)}, {writes}, {len(texts)}, {listed}}}"
    )


def rules(e: Entry) -> Iterator[str]:
    """What a caller of the module has to see to, as texts: sizes, ranges of values, outputs that say a call failed."""
    for r in e.requires:
        yield _requirement(r)
    for c in e.checks:
        yield _range(c)
    outputs = {p.name for p in e.outputs}
    for name in e.finite:
        if name in outputs:
            yield f"where {name} comes out not finite, keep the state from before the call"
        else:
            yield f"{name} is finite"
    if e.restarts:
        yield "it computes nothing: start all state again"


def _requirement(r: Requirement) -> str:
    return f"{r.dim} >= 0: {r.what}"


def _range(c: Check) -> str:
    low = "" if c.low is None else f"{c.low} <= "
    high = "" if c.high is None else f" <= {c.high}"
    return f"{low}{c.input}{high}: {c.what}"


def identifier(name: str) -> str:
    """The name with `_` for what identifiers do not hold; not unique."""
    return re.sub(r"[^A-Za-z0-9_]", "_", name)


def quoted(text: str) -> str:
    r"""A C string: bytes of UTF-8, in octal where they are not plain; `?` too, since `??/` is a backslash in C99."""
    plain = (chr(b) if 32 <= b < 127 and chr(b) not in '"\\?' else f"\\{b:03o}" for b in text.encode())
    return f'"{"".join(plain)}"'
