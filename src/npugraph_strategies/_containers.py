"""Nested argument values: lists, tuples, named tuples and dicts of anything."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from torch import Tensor

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ["leaves", "map_leaves", "map_tensors", "tensors"]


def map_leaves(value: Any, fn: Callable[[Any], Any]) -> Any:
    """Return `value` rebuilt with `fn` applied to whatever is not a container; containers keep their type.

    >>> map_leaves({"a": [1, (2, None)]}, lambda leaf: leaf if leaf is None else leaf * 10)
    {'a': [10, (20, None)]}
    """
    if isinstance(value, dict):
        mapped = copy.copy(value)  # keeps the subclass and its settings, such as a defaultdict's factory
        for key, item in value.items():
            mapped[key] = map_leaves(item, fn)
        return mapped
    if isinstance(value, (list, tuple)):
        items = [map_leaves(item, fn) for item in value]
        kind: Any = type(value)
        if kind is list:
            return items
        if isinstance(value, tuple) and hasattr(kind, "_make"):  # the documented mark of a named tuple
            return kind._make(items)
        return kind(items)
    return fn(value)


def leaves(value: Any) -> Iterator[Any]:
    """Iterate over whatever in `value` is not a container, in order.

    >>> list(leaves([1, {"k": (2, None)}]))
    [1, 2, None]
    """
    if isinstance(value, dict):
        for item in value.values():
            yield from leaves(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item)
    else:
        yield value


def map_tensors(value: Any, fn: Callable[[Tensor], Any]) -> Any:
    """Return `value` rebuilt with `fn` applied to every tensor; all else stays."""
    return map_leaves(value, lambda leaf: fn(leaf) if isinstance(leaf, Tensor) else leaf)


def tensors(value: Any) -> Iterator[Tensor]:
    """Iterate over the tensors in `value`, in order."""
    return (leaf for leaf in leaves(value) if isinstance(leaf, Tensor))
