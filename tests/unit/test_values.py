"""Host values: every usual form is taken, what the operator would reject is refused, and nothing is shared."""

from __future__ import annotations

import array
from collections import OrderedDict, deque

import numpy as np
import pytest
import torch

from npugraph_strategies import OpCall
from npugraph_strategies._values import as_given, brief, host_value, same_value, snapshot
from npugraph_strategies.errors import InvalidValue, UnknownArgument
from support import toys

X = torch.zeros(2)
KINDS = OpCall.bind("nstest::kinds", (X,))
FILL = toys.FILL.ops[0]
BIG = 2**63


def fill(dtype=torch.int32, count=2):
    return OpCall.bind(FILL, (X, torch.ones(count).to(dtype), X, X))


@pytest.mark.parametrize(
    "value",
    [
        [3, 5],
        (3, 5),
        range(3, 7, 2),
        np.array([3, 5]),
        np.array([3, 5], dtype=np.uint8),
        np.array([5, 3], dtype=">i4")[::-1],
        [np.int64(3), np.int32(5)],
        torch.tensor([3, 5]),
        torch.tensor([3, 0, 5], dtype=torch.int32)[::2],
        [torch.tensor(3), 5],
        array.array("l", [3, 5]),
        deque([3, 5]),
    ],
    ids=lambda value: type(value).__name__,
)
@pytest.mark.parametrize("name", ["li", "lo"])
def test_integers_in_any_form(name, value):
    """Every usual sequence of integers becomes a tuple of Python's."""
    kept = host_value(KINDS, name, value)
    assert kept == (3, 5)
    assert [type(item) for item in kept] == [int, int]


@pytest.mark.parametrize(
    "value",
    [
        3,
        "35",
        b"35",
        {3, 5},
        {3: 5},
        [3.0, 5],
        [True, 5],
        [np.True_],
        ["3"],
        [None],
        [[3], [5]],
        np.array([3.0]),
        np.array([True]),
        np.array(3),
        np.array([[3]]),
        torch.tensor([3.0]),
        torch.tensor([True]),
        torch.tensor(3),
        torch.tensor([[3]]),
        torch.tensor([3], device="meta"),
        [torch.tensor(True)],
        [torch.tensor(3, device="meta")],
        pytest.param(iter([3]), id="an iterator"),
        [BIG],
        [-BIG - 1],
        np.array([BIG], dtype=np.uint64),
    ],
    ids=repr,
)
def test_what_is_no_sequence_of_integers(value):
    """Scalars, texts, sets, floats, truth values, nested lists, device tensors and huge numbers are refused."""
    with pytest.raises(InvalidValue) as caught:
        host_value(KINDS, "lo", value)
    assert (caught.value.op, caught.value.name) == ("nstest::kinds.default", "lo")
    assert caught.value.expected == "a sequence of 64-bit integers"


def test_the_largest_integers_fit():
    """The bounds of 64 bits are values."""
    assert host_value(KINDS, "li", [-BIG, BIG - 1]) == (-BIG, BIG - 1)


@pytest.mark.parametrize("value", [[], (), np.array([], dtype=int), torch.tensor([], dtype=torch.int64)], ids=repr)
def test_no_integers_at_all(value):
    """An empty sequence is a value, not an absent one."""
    assert host_value(KINDS, "lo", value) == ()


def test_none_is_a_value_of_optional_arguments():
    """None is taken where the schema allows it."""
    assert host_value(KINDS, "lo", None) is None


@pytest.mark.parametrize("name", ["li", "i", "f", "b", "s", "n", "x"])
def test_none_is_refused_elsewhere(name):
    """None for an argument that is not optional is refused, naming the type."""
    with pytest.raises(InvalidValue, match="given None"):
        host_value(KINDS, name, None)


@pytest.mark.parametrize(
    ("name", "value", "kept"),
    [
        ("i", 3, 3),
        ("i", np.int32(3), 3),
        ("i", torch.tensor(3), 3),
        ("j", 0, 0),
        ("f", 2, 2.0),
        ("f", np.float32(0.5), 0.5),
        ("f", 0.0, 0.0),
        ("b", False, False),
        ("b", np.True_, True),
        ("s", "", ""),
        ("n", 3, 3),
        ("n", 0.5, 0.5),
        ("n", -BIG, -BIG),
        ("n", 2 * BIG - 1, 2 * BIG - 1),
        ("lf", [1, 0.5], (1.0, 0.5)),
        ("lb", [True, False], (True, False)),
        ("ls", ["a", ""], ("a", "")),
    ],
)
def test_scalars_and_their_lists(name, value, kept):
    """Numbers, truth values, texts and lists of them become Python's own, and falsy ones stay themselves."""
    result = host_value(KINDS, name, value)
    assert (result, type(result)) == (kept, type(kept))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("i", 3.0),
        ("i", True),
        ("i", BIG),
        ("i", "3"),
        ("i", [3]),
        ("f", True),
        ("f", "1"),
        ("f", 1j),
        ("b", 0),
        ("s", b"a"),
        ("n", "1"),
        ("n", -BIG - 1),
        ("n", 2 * BIG),
        ("lf", ["1"]),
        ("lf", 0.5),
        ("lb", [1]),
        ("ls", "ab"),
        ("lt", [None]),
        ("t", np.array(["a"], dtype=object)),
        ("ls", [1]),
    ],
)
def test_scalars_of_another_type(name, value):
    """A value that the dispatcher would not take is refused before anything is launched."""
    with pytest.raises(InvalidValue):
        host_value(KINDS, name, value)


def test_an_argument_that_the_operator_lacks():
    """A name outside the schema is our error, not a KeyError."""
    with pytest.raises(UnknownArgument):
        host_value(KINDS, "nope", 3)


@pytest.mark.parametrize(
    "value",
    [
        [3, 5],
        (3, 5),
        range(3, 7, 2),
        np.array([3, 5], dtype=np.int64),
        np.array([5, 3])[::-1],
        torch.tensor([3, 5]),
        torch.tensor([3, 5], dtype=torch.uint8),
        [torch.tensor(3), torch.tensor(5)],
    ],
    ids=lambda value: type(value).__name__,
)
def test_host_tensors_in_any_form(value):
    """Every usual form of a host tensor gets the dtype of the captured one."""
    kept = host_value(fill(), "lens", value)
    assert kept.dtype is torch.int32
    assert kept.tolist() == [3, 5]


def test_read_only_arrays():
    """An array that may not be written is copied without a warning."""
    value = np.array([3, 5])
    value.flags.writeable = False
    assert host_value(fill(), "lens", value).tolist() == [3, 5]


@pytest.mark.parametrize(
    "value",
    [
        ["a"],
        "ab",
        {3},
        {3: 5},
        [[1], [2, 3]],
        [None],
        [3.0, 5.0],
        [0.5, 1],
        [True, False],
        [True, 5],
        torch.tensor([3.0, 5.0]),
        torch.tensor([True, False]),
        np.array([0.5, 1]),
        [2**31, 0],
        [-(2**31) - 1, 0],
        [2**70, 0],
        3,
        [[3]],
        torch.tensor(3),
        torch.tensor([3, 5], device="meta"),
        [torch.tensor(3, device="meta"), 5],
    ],
    ids=repr,
)
def test_what_is_no_host_tensor(value):
    """Texts, floats, truth values, numbers that do not fit, other ranks and device tensors are refused."""
    with pytest.raises(InvalidValue):
        host_value(fill(), "lens", value)


def test_the_bounds_of_the_dtype_are_values():
    """Numbers at the ends of the captured dtype fit."""
    assert host_value(fill(), "lens", [-(2**31), 2**31 - 1]).tolist() == [-(2**31), 2**31 - 1]


def test_an_empty_host_tensor():
    """An empty list has no number that could be of the wrong kind."""
    assert host_value(fill(count=0), "lens", []).dtype is torch.int32


@pytest.mark.parametrize(
    "value", [[], [3], [3, 5, 7], (3,), range(3), np.array([3]), torch.tensor([3]), 3, [[3, 5]]], ids=repr
)
def test_a_host_tensor_of_another_shape(value):
    """An operator that was captured with a host tensor takes another of its shape only."""
    with pytest.raises(InvalidValue) as caught:
        host_value(fill(), "lens", value)
    assert caught.value.expected == "a tensor of shape [2], as captured"
    assert caught.value.given == as_given(value)


def test_a_tensor_left_out_at_capture_has_no_shape_to_keep():
    """Without a captured tensor there is nothing to compare with."""
    assert host_value(KINDS, "t", [1, 2, 3]).shape == (3,)


@pytest.mark.parametrize(
    ("dtype", "value", "expected"),
    [
        (torch.int32, [1.0, 2.0], "integers that torch.int32 can hold"),
        (torch.int32, [True, False], "integers that torch.int32 can hold"),
        (torch.int32, [2**31, 0], "integers that torch.int32 can hold"),
        (torch.float16, [True, False], "numbers that torch.float16 can hold"),
        (torch.bool, [1, 0], "truth values"),
    ],
)
def test_numbers_of_another_kind(dtype, value, expected):
    """The error says which kind of number the captured dtype takes."""
    with pytest.raises(InvalidValue) as caught:
        host_value(fill(dtype), "lens", value)
    assert (caught.value.expected, caught.value.given) == (expected, str(value))


def test_floats_take_integers():
    """Integers are fine for a floating-point tensor, truth values are not."""
    assert host_value(fill(torch.float16), "lens", [1, 2]).dtype is torch.float16
    with pytest.raises(InvalidValue):
        host_value(fill(torch.float16), "lens", [True, False])


def test_truth_values_for_a_truth_tensor():
    """A captured mask of truth values takes truth values only."""
    assert host_value(fill(torch.bool), "lens", [True, False]).tolist() == [True, False]
    with pytest.raises(InvalidValue):
        host_value(fill(torch.bool), "lens", [1, 0])


def test_a_tensor_left_out_at_capture_keeps_the_given_dtype():
    """Without a captured tensor, the one that is given says its dtype."""
    assert host_value(KINDS, "t", np.array([1], dtype=np.int16)).dtype is torch.int16


def test_the_default_device_does_not_matter():
    """A host value is on the host even where new tensors go to a device by default."""
    with torch.device("meta"):
        assert host_value(fill(), "lens", [3, 5]).tolist() == [3, 5]


@pytest.mark.parametrize("make", [list, np.array, torch.tensor], ids=["list", "array", "tensor"])
@pytest.mark.parametrize("name", ["li", "t"])
def test_host_values_are_snapshots(name, make):
    """What the caller does to its value afterwards is not seen."""
    value = make([3, 5])
    kept = host_value(KINDS, name, value)
    value[0] = 99
    assert list(kept) == [3, 5]


def test_lists_of_tensors_are_snapshots():
    """A list of host tensors is copied with its tensors."""
    value = [torch.tensor([3])]
    kept = host_value(KINDS, "lt", value)
    value[0][0] = 99
    assert kept[0].tolist() == [3]


def test_a_snapshot_shares_nothing():
    """Mutation at any depth does not reach a snapshot."""
    value = {"a": [torch.tensor([1]), {"b": [2]}]}
    kept = snapshot(value)
    value["a"][0][0] = 9
    value["a"][1]["b"].append(3)
    assert (kept["a"][0].item(), kept["a"][1]) == (1, {"b": [2]})


def test_a_snapshot_has_no_grad():
    """A snapshot of a tensor in an autograd graph does not keep the graph."""
    assert snapshot(torch.ones(1, requires_grad=True) * 2).grad_fn is None


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ((1, 2), [1, 2], True),
        ((1,), (1, 2), False),
        ((), None, False),
        (None, None, True),
        (0, False, False),
        (0, 0.0, False),
        ("", None, False),
        (torch.tensor([1]), torch.tensor([1]), True),
        (torch.tensor([1]), torch.tensor([1.0]), False),
        (torch.tensor([1]), torch.tensor([1, 2]), False),
        (torch.tensor([1]), [1], False),
        ([torch.tensor([1])], (torch.tensor([1]),), True),
    ],
    ids=repr,
)
def test_same_values(a, b, same):
    """Two values are the same when the operator could not tell them apart."""
    assert same_value(a, b) is same
    assert same_value(b, a) is same


def test_tensors_are_shown_by_shape():
    """An error never prints a tensor's content, which may be on the device."""
    assert as_given(torch.zeros(2, 3)) == "a torch.float32 tensor of shape [2, 3]"
    assert as_given(torch.zeros(2, device="meta")) == "a torch.float32 tensor of shape [2] on meta"
    assert as_given([torch.zeros(2, device="meta")]) == "[float32[2]]"


def test_long_values_are_shortened():
    """A long list is cut to a line."""
    text = as_given(list(range(1000)))
    assert len(text) == 120
    assert text.endswith("...")


def test_short_forms_keep_containers():
    """The short form of a nested value shows its containers."""
    text = brief(OrderedDict(a=(1, torch.zeros(1))))
    assert text.startswith("OrderedDict(")
    assert "(1, float32[1])" in text
