"""Laws of host values: every form of the same numbers is the same value, and it belongs to the library."""

from __future__ import annotations

import contextlib

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from npugraph_strategies import OpCall
from npugraph_strategies._values import as_given, host_value, same_value, snapshot
from npugraph_strategies.errors import InvalidValue
from support import toys

QUICK = settings(max_examples=80, deadline=None)
KINDS = OpCall.bind(f"{toys.LIBRARY.ns}::kinds", (torch.zeros(1),))
int32 = st.integers(-(2**31), 2**31 - 1)
FORMS = {
    "list": list,
    "tuple": tuple,
    "array": lambda x: np.array(x, dtype=np.int64),
    "reversed array": lambda x: np.array(x[::-1], dtype=np.int64)[::-1],
    "numbers": lambda x: [np.int32(item) for item in x],
    "tensor": lambda x: torch.tensor(x, dtype=torch.int64),
    "strided tensor": lambda x: torch.tensor(x, dtype=torch.int64).repeat_interleave(2)[::2],
    "narrow tensor": lambda x: torch.tensor(x, dtype=torch.int32),
}
forms = st.sampled_from(sorted(FORMS))
numbers = st.lists(int32, max_size=5)


def host(count):
    """Return a call that was captured with a host tensor of so many numbers."""
    x = torch.zeros(1)
    return OpCall.bind(toys.FILL.ops[0], (x, torch.zeros(count, dtype=torch.int32), x, x))


@QUICK
@given(numbers, forms)
def test_every_form_is_the_same_list(values, form):
    """A list argument gets the same tuple of Python integers from every form."""
    kept = host_value(KINDS, "lo", FORMS[form](values))
    assert kept == tuple(values)
    assert all(type(item) is int for item in kept)


@QUICK
@given(numbers, forms)
def test_every_form_is_the_same_tensor(values, form):
    """A host tensor gets the captured dtype, and the same numbers, from every form."""
    kept = host_value(host(len(values)), "lens", FORMS[form](values))
    assert kept.dtype is torch.int32
    assert kept.tolist() == values


@QUICK
@given(numbers.filter(bool), forms, st.sampled_from(["lo", "t"]))
def test_the_callers_value_is_not_shared(values, form, name):
    """Whatever the caller does to its value afterwards is not seen."""
    value = FORMS[form](values)
    kept = host_value(KINDS, name, value)
    if not isinstance(value, tuple):
        value[0] = 77
    assert list(kept) == values


@QUICK
@given(numbers, forms, forms)
def test_the_same_numbers_are_the_same_value(values, one, other):
    """Two forms of the same numbers give values that are the same for the operator, and a second pass keeps them."""
    for call, name in ((KINDS, "lo"), (host(len(values)), "lens")):
        first, second = host_value(call, name, FORMS[one](values)), host_value(call, name, FORMS[other](values))
        assert same_value(first, second)
        assert same_value(host_value(call, name, first), first)


@QUICK
@given(numbers, numbers)
def test_other_numbers_are_another_value(one, other):
    """Values are the same exactly if their numbers are."""
    lists = [host_value(KINDS, "lo", numbers) for numbers in (one, other)]
    tensors = [host_value(host(len(numbers)), "lens", numbers) for numbers in (one, other)]
    assert same_value(*lists) is same_value(*tensors) is (one == other)


@QUICK
@given(numbers, numbers, forms)
def test_a_host_tensor_keeps_its_shape(captured, values, form):
    """An operator that was captured with a shape takes exactly as many numbers, from every form."""
    call = host(len(captured))
    if len(values) == len(captured):
        assert host_value(call, "lens", FORMS[form](values)).tolist() == values
    else:
        with pytest.raises(InvalidValue, match=rf"a tensor of shape \[{len(captured)}\], as captured"):
            host_value(call, "lens", FORMS[form](values))


odd = st.sampled_from([None, True, "3", 2.0, 0.5, [1], (), {}, 1j, b"3", 2**63, torch.tensor(1.0), np.float32(1)])


@QUICK
@given(numbers, st.integers(0, 5), odd)
@example([], 0, True)
def test_one_odd_item_spoils_a_list(values, place, item):
    """One item that is no 64-bit integer makes the whole value wrong, wherever it stands."""
    with pytest.raises(InvalidValue) as caught:
        host_value(KINDS, "lo", [*values[:place], item, *values[place:]])
    assert (caught.value.name, caught.value.op) == ("lo", KINDS.name)


anything = st.recursive(
    odd | st.integers() | st.floats() | st.text(max_size=3) | st.builds(np.array, st.floats()),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=2), inner, max_size=2) | st.tuples(inner)
    ),
    max_leaves=5,
)
kinds = st.sampled_from(["i", "f", "b", "s", "n", "j", "li", "lf", "lb", "ls", "lo", "t"])


@settings(QUICK, max_examples=200)
@given(kinds, anything)
@example("t", [np.array(1e7), 2.0])  # torch warned of a list of arrays
def test_a_value_is_taken_or_refused_as_ours(name, value):
    """Any value at all is either taken, and then the operator takes it too, or refused with our error."""
    with contextlib.suppress(InvalidValue):
        kept = host_value(KINDS, name, value)
        KINDS.replace(**{name: kept})()


@QUICK
@given(anything)
def test_anything_can_be_shown(value):
    """Showing a value in an error never fails, and fits a line."""
    assert 0 < len(as_given(value)) <= 120


@QUICK
@given(st.lists(st.lists(st.integers(), max_size=2) | st.integers(), max_size=3))
def test_a_snapshot_is_equal(value):
    """A snapshot is the same value."""
    assert same_value(snapshot(value), value)
