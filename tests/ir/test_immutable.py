"""Objects that never change: as frozen dataclasses are."""

from __future__ import annotations

import copy
import pickle

import pytest

import lstm_ir as li
from lstm_ir.ir import dims
from lstm_ir.ir.immutable import Immutable
from lstm_ir.ir.signature import Entry, Signature
from lstm_ir.ir.types import DType, TensorType

ENTRY = Entry("main", (), (), reads=("h",))
T = dims.name("T")
SIZE = dims.floordiv(dims.add(T, 1), 2)
CASES = [ENTRY, Signature("p", {"main": ENTRY}), TensorType((SIZE, 3), DType.f32), SIZE]


@pytest.mark.parametrize("one", CASES, ids=lambda r: type(r).__name__)
def test_copies_are_equal_and_nothing_changes(one: Immutable) -> None:
    for other in (pickle.loads(pickle.dumps(one)), copy.deepcopy(one), copy.copy(one), one._replace()):
        assert other == one
        assert type(other) is type(one)
        assert repr(other) == repr(one)
    for name in one._fields:
        with pytest.raises(AttributeError, match=name):
            setattr(one, name, None)
        with pytest.raises(AttributeError, match=name):
            delattr(one, name)


def test_fields_decide_what_is_equal() -> None:
    assert ENTRY == Entry("main", (), (), reads=("h",)) != ENTRY._replace(reads=())
    assert len({TensorType((2,), DType.f32), TensorType((2,), DType.f32), TensorType((2,), DType.f64)}) == 2
    assert TensorType((2,), DType.f32) != ((2,), DType.f32)
    str(SIZE)  # the text that a size keeps is none of its fields
    same = dims.parse("(T+1)//2")
    assert SIZE == same
    assert hash(SIZE) == hash(same)
    assert li.input("x", (2,)).type != "f32[2]"
