"""Host lengths in all the forms that attention operators take them, made into one length per sequence."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from npugraph_strategies.reference._checks import require

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["cumulative_lengths", "exact_lengths", "padded_lengths"]


def padded_lengths(op: str, name: str, given: Sequence[int] | None, batch: int, capacity: int) -> list[int]:
    """Return `batch` lengths of a padded layout: None is full, one value is for all, more than `batch` are cut.

    Raises `OperatorRejected` for fewer than `batch` values and for a length that is negative or above `capacity`.
    """
    if given is None:
        return [capacity] * batch
    require(
        len(given) == 1 or len(given) >= batch,
        op,
        f"{name} must have one value or at least {batch} (the batch); given {len(given)}",
    )
    lengths = [int(given[0])] * batch if len(given) == 1 else [int(length) for length in given[:batch]]
    return _bounded(op, name, lengths, capacity)


def exact_lengths(op: str, name: str, given: Sequence[int], batch: int, capacity: int) -> list[int]:
    """Return exactly `batch` lengths.

    Raises `OperatorRejected` for another count and for a length that is negative or above `capacity`.
    """
    require(len(given) == batch, op, f"{name} must have {batch} values, one a sequence; given {len(given)}")
    return _bounded(op, name, [int(length) for length in given], capacity)


def cumulative_lengths(op: str, name: str, given: Sequence[int]) -> list[int]:
    """Return the lengths of which `given` is the running sum, the form of packed (TND) layouts.

    Raises `OperatorRejected` for no value at all, a negative one, or a value below the one before.
    """
    require(len(given) > 0, op, f"{name} must have at least one value; given none")
    ends = [0, *(int(end) for end in given)]
    lengths = [end - start for start, end in pairwise(ends)]
    require(min(lengths) >= 0, op, f"{name} must be cumulative: not negative and never decreasing; given {ends[1:]}")
    return lengths


def _bounded(op: str, name: str, lengths: list[int], capacity: int) -> list[int]:
    """Return `lengths`, each proved to lie in 0 to `capacity`."""
    require(
        all(0 <= length <= capacity for length in lengths),
        op,
        f"{name} must lie in 0 to {capacity}; given {lengths}",
    )
    return lengths
