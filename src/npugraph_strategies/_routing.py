"""Routing: which record gets which values.

The form of what the caller passes says how it is routed: a mapping is broadcast, ``each([...])`` pairs up,
``by_label({...})`` routes by label, a callable is asked for every record.
"""

from __future__ import annotations

import enum
import fnmatch
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, final

import attrs

from npugraph_strategies._handlers import updatable
from npugraph_strategies._labels import path_of
from npugraph_strategies.errors import AmbiguousUpdate, MissingValues, UnknownLabel, UnknownParameter, WrongCount

if TYPE_CHECKING:
    from npugraph_strategies._records import Record

__all__ = ["KEEP", "ByLabel", "Each", "Keep", "Rest", "Values", "by_label", "each", "route"]


class Keep(enum.Enum):
    """The type of `KEEP`."""

    KEEP = "KEEP"

    def __repr__(self) -> str:
        return "KEEP"


KEEP: Final = Keep.KEEP
"""For a record: its last values stand, its event is signalled."""


@final
@attrs.frozen
class Each:
    """One mapping per record, in capture order; made by `each`."""

    items: tuple[Mapping[str, Any] | Keep, ...]


@final
@attrs.frozen
class ByLabel:
    """Mappings by label pattern; made by `by_label`."""

    items: tuple[tuple[str, Mapping[str, Any] | Keep], ...]


def each(values: Sequence[Mapping[str, Any] | Keep], /) -> Each:
    """Give the n-th mapping to the n-th record, in capture order; an item may be `KEEP`.

    >>> each([{"context_lens": [3]}, KEEP])
    Each(items=({'context_lens': [3]}, KEEP))
    """
    if isinstance(values, (Mapping, str)) or not isinstance(values, Iterable):
        raise TypeError(f"each wants a list of mappings, one per record in capture order; given {values!r}")
    return Each(tuple(values))


def by_label(values: Mapping[str, Mapping[str, Any] | Keep], /) -> ByLabel:
    """Give each mapping, or `KEEP`, to the records whose label matches its pattern.

    A pattern uses ``*``, ``?`` and ``[...]``. With a ``#`` it is compared with the whole label, without one with
    the module path, so that ``"layers.*.self_attn"`` means every call there and ``"layers.*.self_attn#0"`` the
    first one of each.

    >>> by_label({"layers.0.*": {"context_lens": [3]}, "layers.1.*": KEEP})
    ByLabel(items=(('layers.0.*', {'context_lens': [3]}), ('layers.1.*', KEEP)))
    """
    if not isinstance(values, Mapping):
        raise TypeError(f"by_label wants a mapping of label patterns to mappings or KEEP; given {values!r}")
    return ByLabel(tuple(values.items()))


Values: TypeAlias = Mapping[str, Any] | Each | ByLabel | Callable[["Record"], Mapping[str, Any] | Keep]
Rest: TypeAlias = Literal[Keep.KEEP] | None
Routed: TypeAlias = list[Mapping[str, Any]]


def route(records: Sequence[Record], values: Values, rest: Rest) -> Routed:
    """Return one mapping per record (empty: its last values stand).

    Raises `UnknownParameter`, `UnknownLabel`, `AmbiguousUpdate`, `WrongCount`, or `MissingValues` when a record
    gets nothing and `rest` is not `KEEP`.
    """
    if rest is not None and rest is not KEEP:
        raise TypeError(f"rest must be KEEP or None; given {rest!r}")
    if isinstance(values, Each):
        chosen = _paired(records, values)
    elif isinstance(values, ByLabel):
        chosen = _labelled(records, values)
    elif isinstance(values, Mapping):
        chosen = _broadcast(records, values)
    elif callable(values):
        chosen = [_declared(record, values(record)) for record in records]
    else:
        raise TypeError(
            f"values must be a mapping, each([...]), by_label({{...}}) or a callable that takes a record; "
            f"given {type(values).__name__}"
        )
    missing = tuple(r.label for r, v in zip(records, chosen, strict=True) if v is not KEEP and not v)
    if missing and rest is not KEEP:
        raise MissingValues(missing)
    return [{} if isinstance(v, Keep) else v for v in chosen]


def _broadcast(records: Sequence[Record], values: Mapping[str, Any]) -> list[Mapping[str, Any] | Keep]:
    where = (
        "any record of this graph"
        if records
        else "this graph: no captured operator has a handler in the session's registry"
    )
    _declared_by_any(records, values, where)
    return [{n: v for n, v in values.items() if n in updatable(record.handler)} for record in records]


def _declared_by_any(records: Sequence[Record], values: Any, where: str) -> None:
    """Refuse anything but a mapping of names that some of the records declare."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{where} wants a mapping of names to values or KEEP; given {values!r}")
    declared = tuple(dict.fromkeys(name for record in records for name in updatable(record.handler)))
    for name in values:
        if name not in declared:
            raise UnknownParameter(str(name), where, declared)


def _paired(records: Sequence[Record], values: Each) -> list[Mapping[str, Any] | Keep]:
    if len(values.items) != len(records):
        raise WrongCount(len(records), len(values.items), tuple(r.label for r in records))
    return [_declared(record, item) for record, item in zip(records, values.items, strict=True)]


def _labelled(records: Sequence[Record], values: ByLabel) -> list[Mapping[str, Any] | Keep]:
    chosen: list[dict[str, Any]] = [{} for _ in records]
    kept: set[int] = set()
    origin: list[dict[str, str]] = [{} for _ in records]
    paths = [path_of(record.label) for record in records]
    for pattern, mapping in values.items:
        texts = [record.label for record in records] if "#" in pattern else paths
        matched = [i for i, text in enumerate(texts) if text == pattern or fnmatch.fnmatchcase(text, pattern)]
        if not matched:
            raise UnknownLabel(pattern, tuple(r.label for r in records))
        if isinstance(mapping, Keep):
            kept.update(matched)
            continue
        _declared_by_any([records[i] for i in matched], mapping, f"any record that {pattern!r} matches")
        for i in matched:
            for name in updatable(records[i].handler):
                if name not in mapping:
                    continue
                if name in chosen[i]:
                    raise AmbiguousUpdate(records[i].label, name, (origin[i][name], pattern))
                chosen[i][name], origin[i][name] = mapping[name], pattern
    return [KEEP if i in kept and not given else given for i, given in enumerate(chosen)]


def _declared(record: Record, mapping: Any) -> Mapping[str, Any] | Keep:
    return mapping if isinstance(mapping, Keep) else _given(record, mapping)


def _given(record: Record, mapping: Any) -> Mapping[str, Any]:
    """Refuse anything but a mapping of names that this record declares."""
    if not isinstance(mapping, Mapping):
        raise TypeError(f"record {record.label!r} wants a mapping of names to values or KEEP; given {mapping!r}")
    declared = updatable(record.handler)
    for name in mapping:
        if name not in declared:
            raise UnknownParameter(str(name), f"record {record.label!r} ({record.op})", declared)
    return mapping
