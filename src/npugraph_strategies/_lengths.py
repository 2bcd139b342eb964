"""Length rules: what the attention operators demand of their host lengths, as values a handler carries.

A rule reads a call as it would be issued and raises `InvalidValue` where the operator would answer with an error
of its own, on the device, after the update has begun. The rules are those of the operators' public documentation:
per sequence in the batched layouts, cumulative in ``TND``.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from torch import Tensor

from npugraph_strategies._values import as_given
from npugraph_strategies.errors import InvalidValue

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npugraph_strategies._calls import OpCall

__all__ = ["AttentionLengths", "LengthRule", "PagedLengths", "TokensPerSequence"]


class LengthRule(Protocol):
    """A check of the length arguments of one call."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return the arguments that the rule reads, for `HandlerRegistry.check`."""
        ...

    def check(self, call: OpCall) -> None:
        """Raise `InvalidValue` when the operator would reject the lengths of this call."""
        ...


def _listed(value: Any) -> list[int]:
    return [int(item) for item in (value.tolist() if isinstance(value, Tensor) else value)]


def _refuse(call: OpCall, name: str, expected: str) -> InvalidValue:
    value = call.arguments[name]
    shown = as_given(_listed(value)) if value is not None else "None"
    return InvalidValue(call.name, name, expected, shown)


def _within(call: OpCall, name: str, lengths: Sequence[int], capacity: int | None) -> None:
    if any(length < 0 for length in lengths):
        raise _refuse(call, name, "non-negative lengths")
    if capacity is not None and any(length > capacity for length in lengths):
        raise _refuse(call, name, f"lengths of at most {capacity}, what was captured for each sequence")


@attrs.frozen
class AttentionLengths:
    """Query and key/value lengths of fused infer attention, by layout.

    ``BSH``, ``BSND``, ``BNSD``: one value for all sequences, or one for each (what comes after is padding); at most
    the captured length, or with a block table, what its row of blocks holds. Query lengths of single rows are not
    read by the operator. ``TND``: query lengths cumulative, ending at the captured number of tokens; key/value
    lengths cumulative too, or with a block table, one for each sequence.

    >>> import torch
    >>> from npugraph_strategies import OpCall, reference
    >>> reference.install()
    >>> row, keys = torch.ones(1, 1, 4), torch.ones(1, 8, 4)
    >>> call = OpCall.bind("npu::npu_fused_infer_attention_score", (row, keys, keys), {"actual_seq_lengths_kv": [9]})
    >>> AttentionLengths(query="actual_seq_lengths", kv="actual_seq_lengths_kv").check(call)
    Traceback (most recent call last):
        ...
    npugraph_strategies.errors.InvalidValue: ...actual_seq_lengths_kv must be lengths of at most 8...given [9]
    """

    query: str
    kv: str
    layout: str = "input_layout"
    block_table: str = "block_table"
    block_size: str = "block_size"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the arguments that the rule reads."""
        return ("query", "key", self.query, self.kv, self.layout, self.block_table, self.block_size)

    def check(self, call: OpCall) -> None:
        """Raise `InvalidValue` when a list of lengths does not fit the captured tensors."""
        layout = str(call.arguments[self.layout]).partition("_")[0]
        if layout in ("TND", "NTD"):
            self._check_packed(call, 0 if layout == "TND" else 1)
        elif layout in _SEQUENCE_DIM:
            self._check_batched(call, _SEQUENCE_DIM[layout])

    def _paged_capacity(self, call: OpCall) -> int | None:
        table = call.arguments[self.block_table]
        return None if table is None else table.shape[1] * int(call.arguments[self.block_size])

    def _check_batched(self, call: OpCall, sequence_dim: int) -> None:
        query, key = call.arguments["query"], call.arguments["key"]
        batch = query.shape[0]
        paged = self._paged_capacity(call)
        capacities = {
            self.query: query.shape[sequence_dim],
            self.kv: key.shape[sequence_dim] if paged is None else paged,
        }
        if query.shape[sequence_dim] == 1:
            del capacities[self.query]
        for name, capacity in capacities.items():
            if call.arguments[name] is None:
                continue
            lengths = _listed(call.arguments[name])
            if len(lengths) != 1 and len(lengths) < batch:
                raise _refuse(call, name, f"one length, or one for each of the {batch} sequences captured")
            _within(call, name, lengths[:batch], capacity)
        if paged is not None and call.arguments[self.kv] is None:
            raise _refuse(call, self.kv, f"given, since {self.block_table} is")

    def _check_packed(self, call: OpCall, token_dim: int) -> None:
        query, key = call.arguments["query"], call.arguments["key"]
        for name in (self.query, self.kv):
            if call.arguments[name] is None or not _listed(call.arguments[name]):
                raise _refuse(call, name, "at least one length, since the layout packs sequences")
        count = self._check_cumulative(call, self.query, query.shape[token_dim], exact=True)
        paged = self._paged_capacity(call)
        lengths = _listed(call.arguments[self.kv])
        if len(lengths) != count:
            raise _refuse(call, self.kv, f"{count} lengths, as many as {self.query}")
        if paged is None:
            self._check_cumulative(call, self.kv, key.shape[token_dim], exact=False)
            return
        rows = call.arguments[self.block_table].shape[0]
        if len(lengths) != rows:
            raise _refuse(call, self.kv, f"{rows} lengths, one for each row of {self.block_table}")
        _within(call, self.kv, lengths, paged)

    def _check_cumulative(self, call: OpCall, name: str, total: int, *, exact: bool) -> int:
        """Check the ends of packed sequences and return how many there are."""
        lengths = _listed(call.arguments[name])
        _within(call, name, lengths, None)
        if any(after < before for before, after in pairwise(lengths)):
            raise _refuse(call, name, "cumulative lengths, which never decrease")
        if (lengths[-1] != total) if exact else (lengths[-1] > total):
            ends = "end at" if exact else "end at no more than"
            raise _refuse(call, name, f"cumulative lengths that {ends} the {total} tokens captured")
        return len(lengths)


_SEQUENCE_DIM = {"BSH": 1, "BSND": 1, "BNSD": 2}


@attrs.frozen
class PagedLengths:
    """One key/value length per sequence, at most what its row of a block table holds.

    `sequences` names the argument that has one row per sequence; the block table may have more rows, which are
    padding. The block size is read from the cache: dimension 1 of ``[blocks, block_size, heads, size]``, or dimension 2
    when the last dimension is not the query's (the fractal form ``[blocks, heads * size / 16, block_size, 16]``).

    >>> import torch
    >>> from npugraph_strategies import OpCall, reference
    >>> reference.install()
    >>> query, cache, table = torch.ones(1, 1, 4), torch.ones(2, 8, 1, 4), torch.tensor([[0, 1]]).int()
    >>> arguments = (query, cache, cache, 1, 1, 1.0, table, torch.tensor([17]).int(), query)
    >>> rule = PagedLengths("context_lens", "block_table", cache="key_cache", query="query", sequences="query")
    >>> rule.check(OpCall.bind("atb::_npu_paged_attention", arguments))
    Traceback (most recent call last):
        ...
    npugraph_strategies.errors.InvalidValue: ...context_lens must be lengths of at most 16...given [17]
    """

    lengths: str
    block_table: str
    cache: str
    query: str
    sequences: str

    @property
    def names(self) -> tuple[str, ...]:
        """Return the arguments that the rule reads."""
        return tuple(dict.fromkeys((self.lengths, self.block_table, self.cache, self.query, self.sequences)))

    def check(self, call: OpCall) -> None:
        """Raise `InvalidValue` for a wrong count, or a length beyond the blocks of its row."""
        lengths = _listed(call.arguments[self.lengths])
        rows, blocks = call.arguments[self.sequences].shape[0], call.arguments[self.block_table].shape[1]
        if len(lengths) != rows:
            raise _refuse(call, self.lengths, f"{rows} lengths, one for each row of {self.sequences}")
        cache, query = call.arguments[self.cache], call.arguments[self.query]
        block_size = cache.shape[1] if cache.shape[-1] == query.shape[-1] else cache.shape[2]
        _within(call, self.lengths, lengths, blocks * block_size)


@attrs.frozen
class TokensPerSequence:
    """Numbers of query tokens per sequence that add up to the tokens captured; None means one each.

    >>> import torch
    >>> from npugraph_strategies import OpCall, reference
    >>> reference.install()
    >>> tokens, cache, table = torch.ones(3, 1, 4), torch.ones(2, 8, 1, 4), torch.tensor([[0], [1]]).int()
    >>> arguments = (tokens, tokens, cache, cache, table, [4, 5], 1, 1.0, 1)
    >>> call = OpCall.bind("atb::npu_multi_head_latent_attention", arguments, {"qseqlen": [1, 1]})
    >>> TokensPerSequence("qseqlen", tokens="q_nope", block_table="block_tables").check(call)
    Traceback (most recent call last):
        ...
    npugraph_strategies.errors.InvalidValue: ...qseqlen must be lengths that add up to the 3 tokens...given [1, 1]
    """

    lengths: str
    tokens: str
    block_table: str

    @property
    def names(self) -> tuple[str, ...]:
        """Return the arguments that the rule reads."""
        return (self.lengths, self.tokens, self.block_table)

    def check(self, call: OpCall) -> None:
        """Raise `InvalidValue` for a wrong count or sum."""
        rows = call.arguments[self.block_table].shape[0]
        given = call.arguments[self.lengths]
        lengths = [1] * rows if given is None else _listed(given)
        if len(lengths) != rows:
            raise _refuse(call, self.lengths, f"{rows} lengths, one for each row of {self.block_table}")
        _within(call, self.lengths, lengths, None)
        total = call.arguments[self.tokens].shape[0]
        if sum(lengths) != total:
            raise _refuse(call, self.lengths, f"lengths that add up to the {total} tokens captured")
