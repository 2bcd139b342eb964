"""Nested values are rebuilt in the types they came in."""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, namedtuple
from typing import NamedTuple

import pytest
import torch

from npugraph_strategies._containers import leaves, map_leaves, map_tensors, tensors


class Point(NamedTuple):
    x: object
    y: object = 0


class Names(dict):
    """A dict of one's own, whose `copy` returns a plain dict."""


class Items(list):
    """A list of one's own."""


Old = namedtuple("Old", "a b")  # noqa: PYI024 - the old spelling is what is tested

VALUES = [
    [1, 2],
    (1, 2),
    (),
    Point(1, (2, 3)),
    Old(1, [2]),
    OrderedDict(b=1, a=2),
    {"k": [1, {"deep": (2,)}]},
    Counter("aab"),
    Names(a=1, b=[2]),
    Items([1, 2]),
    torch.Size([2, 3]),
    torch.return_types.max((1, 2)),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_containers_keep_their_type(value):
    """A rebuilt container equals the original, in its own type, and is another object."""
    back = map_leaves(value, lambda leaf: leaf)
    assert type(back) is type(value)
    assert back == value
    assert back is not value or value == ()


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_every_leaf_is_reached_once(value):
    """Iterating and mapping see the same leaves, in the same order."""
    seen = []
    map_leaves(value, lambda leaf: seen.append(leaf) or leaf)
    assert seen == list(leaves(value))


def test_a_factory_is_kept():
    """A defaultdict still makes what it made, and the original is untouched."""
    value = defaultdict(list, a=1)
    back = map_leaves(value, lambda leaf: leaf + 1)
    assert back["other"] == []
    assert value == {"a": 1}


def test_the_order_of_keys_is_kept():
    """Keys come out as they went in."""
    assert list(map_leaves(OrderedDict(b=1, a=2), str)) == ["b", "a"]


def test_none_and_falsy_values_are_leaves():
    """None, zero, False and an empty text reach the function like any other leaf."""
    assert list(leaves([None, 0, False, "", 0.0, []])) == [None, 0, False, "", 0.0]


def test_a_text_is_a_leaf():
    """A string is no container of characters."""
    assert map_leaves("abc", str.upper) == "ABC"


def test_tensors_are_found_and_changed_among_other_leaves():
    """Tensors at any depth are reached in order; numbers, strings and None stay as they are."""
    one, two = torch.tensor(1), torch.tensor(2)
    value = {"a": [one, 3, None], "b": ("x", two)}
    assert [tensor.item() for tensor in tensors(value)] == [1, 2]
    assert map_tensors(value, lambda tensor: tensor.item() * 10) == {"a": [10, 3, None], "b": ("x", 20)}
