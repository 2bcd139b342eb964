"""One decode step, eager or captured, and the prefill before it."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, final

import attrs
import torch

from npugraph_strategies.cli._decoder import Tokens, greedy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from npugraph_strategies import GraphCaptureSession
    from npugraph_strategies.cli._decoder import Decoder
    from npugraph_strategies.cli._paging import PagedCache

__all__ = ["CapturedStep", "EagerStep", "Said", "prefill"]


@final
@attrs.frozen(eq=False)
class Said:
    """What a step gave: the next token of each sequence, and the logits behind it (``[batch, vocabulary]``)."""

    tokens: tuple[int, ...]
    logits: Tensor


def prefill(decoder: Decoder, prompts: Sequence[Sequence[int]], cache: PagedCache) -> tuple[int, ...]:
    """Fill the cache with the prompts, all in one packed pass; return the token that follows each."""
    ends = list(accumulate(len(prompt) for prompt in prompts))
    places = [(sequence, position) for sequence, prompt in enumerate(prompts) for position in range(len(prompt))]
    tokens = Tokens(
        ids=torch.tensor([token for prompt in prompts for token in prompt], device=decoder.device),
        positions=torch.tensor([position for _, position in places], device=decoder.device),
        slots=torch.tensor([cache.slot(*place) for place in places], device=decoder.device),
        query_ends=ends,
        kv_lengths=[len(prompt) for prompt in prompts],
    )
    logits: Tensor = decoder(tokens, cache)
    return tuple(greedy(logits[[end - 1 for end in ends]]).tolist())


def _one_each(ids: Sequence[int], lengths: Sequence[int], cache: PagedCache) -> Tokens:
    """Return one new token a sequence, the last one of its length."""
    device = cache.block_table.device
    return Tokens(
        ids=torch.tensor(ids, device=device),
        positions=torch.tensor([length - 1 for length in lengths], device=device),
        slots=torch.tensor(
            [cache.slot(sequence, length - 1) for sequence, length in enumerate(lengths)], device=device
        ),
        query_ends=list(range(1, len(lengths) + 1)),
        kv_lengths=list(lengths),
    )


@final
@attrs.frozen(eq=False)
class EagerStep:
    """The step as ordinary calls."""

    decoder: Decoder
    cache: PagedCache

    def run(self, ids: Sequence[int], lengths: Sequence[int]) -> Said:
        """Feed one token to each sequence, which then has the given length."""
        logits: Tensor = self.decoder(_one_each(ids, lengths, self.cache), self.cache)
        return Said(tuple(greedy(logits).tolist()), logits)


@final
class CapturedStep:
    """The step as a graph: captured once, with inputs that stay where they are and are written to before each run.

    It is captured for sequences of one token, since a server captures before it knows any: every run updates them.
    """

    def __init__(self, session: GraphCaptureSession, decoder: Decoder, cache: PagedCache) -> None:
        batch = len(cache.table)
        self._runtime = session.runtime
        self._cache = cache
        self._inputs = _one_each([0] * batch, [1] * batch, cache)
        with session.capture(name="decode", watch=[decoder]) as self.graph:
            self._logits: Tensor = decoder(self._inputs, cache)
            self._tokens = greedy(self._logits)

    def run(self, ids: Sequence[int], lengths: Sequence[int]) -> Said:
        """Feed one token to each sequence, which then has the given length."""
        fresh = _one_each(ids, lengths, self._cache)
        self._inputs.ids.copy_(fresh.ids)
        self._inputs.positions.copy_(fresh.positions)
        self._inputs.slots.copy_(fresh.slots)
        self.graph.step({"actual_seq_kvlen": fresh.kv_lengths})
        # A lazy device may not have begun yet, and what the host reads or writes is not in its order.
        self._runtime.synchronize()
        return Said(tuple(self._tokens.tolist()), self._logits.clone())
