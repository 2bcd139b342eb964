"""The demo's decode loop: a captured step against an eager one, token by token, as plain values."""

from __future__ import annotations

import math
from itertools import islice
from typing import TYPE_CHECKING, final

import attrs
import torch

from npugraph_strategies import GraphCaptureSession, UpdateThenReplay
from npugraph_strategies.cli._paging import PagedCache
from npugraph_strategies.cli._stepping import CapturedStep, EagerStep, prefill
from npugraph_strategies.handlers import BUILTIN
from npugraph_strategies.runtimes import RecordingRuntime

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npugraph_strategies import UpdateOrder
    from npugraph_strategies.cli._decoder import Decoder
    from npugraph_strategies.cli._stepping import Said
    from npugraph_strategies.runtimes import GraphRuntime

__all__ = ["Decoded", "Step", "decode"]


@final
@attrs.frozen
class Step:
    """One decode step: the lengths it ran with, what graph and eager said next, and how far their logits differ.

    `difference` is the largest absolute one; infinite when it cannot be told, because either has a NaN.
    """

    lengths: tuple[int, ...]
    tokens: tuple[int, ...]
    eager_tokens: tuple[int, ...]
    difference: float
    matches: bool


@final
@attrs.frozen
class Decoded:
    """What decoding a batch gave: every step, how each sequence went on, and what the device was asked for.

    `continuations` begin with the token that the prefill gave; `records` are the labels of the graph's records;
    `primitives` counts what reached the device.
    """

    continuations: tuple[tuple[int, ...], ...]
    steps: tuple[Step, ...]
    records: tuple[str, ...]
    primitives: Mapping[str, int]

    @property
    def mismatches(self) -> int:
        """Return how many steps differ."""
        return sum(not step.matches for step in self.steps)

    @property
    def largest_difference(self) -> float:
        """Return the largest difference of all steps."""
        return max(step.difference for step in self.steps)

    @property
    def updates(self) -> int:
        """Return how many task groups were updated."""
        return self.primitives.get("task_update_end", 0)

    @property
    def replays(self) -> int:
        """Return how often the graph was replayed."""
        return self.primitives.get("graph.replay", 0)


def decode(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    *,
    runtime: GraphRuntime,
    steps: int,
    order: UpdateOrder | None = None,
    seed: int = 0,
    eager: Decoder | None = None,
    tolerance: float = 0.0,
    on_step: Callable[[Step], None] | None = None,
) -> Decoded:
    """Prefill the prompts eagerly, capture one decode step, run it `steps` times, and compare each run with eager.

    `decoder` lies on the runtime's device; `seed` deals out the blocks of its cache. `eager` is the model that the
    graph is compared with (default: `decoder` itself): it is fed the graph's tokens, and keeps a copy of the cache up
    to date by itself. A step matches when the tokens are equal and no logit differs by more than `tolerance`.
    `on_step` is called after each step.
    """
    recording = RecordingRuntime(runtime)
    session = GraphCaptureSession(BUILTIN, runtime=recording, order=UpdateThenReplay() if order is None else order)
    capacity = max(len(prompt) for prompt in prompts) + steps
    with torch.no_grad():
        cache = PagedCache.empty(
            decoder.config, batch=len(prompts), capacity=capacity, seed=seed, device=decoder.device
        )
        first = prefill(decoder, prompts, cache)
        twin = EagerStep(decoder if eager is None else eager, cache.copy())
        captured = CapturedStep(session, decoder, cache)
        done: list[Step] = []
        with captured.graph:
            lengths = [len(prompt) for prompt in prompts]
            for step in islice(_stepped(captured, twin, first, lengths, tolerance), steps):
                done.append(step)
                if on_step is not None:
                    on_step(step)
            captured.graph.verify()  # weights and cache are where the capture found them
            records = tuple(record.label for record in captured.graph.records)
    return Decoded(
        continuations=tuple(zip(first, *(step.tokens for step in done), strict=True)),
        steps=tuple(done),
        records=records,
        primitives=dict(sorted(recording.counts().items())),
    )


def _stepped(
    captured: CapturedStep, twin: EagerStep, first: tuple[int, ...], lengths: Sequence[int], tolerance: float
) -> Iterator[Step]:
    """Yield one step after the other, each fed what the graph said before."""
    fed = first
    while True:
        lengths = [length + 1 for length in lengths]
        said = captured.run(fed, lengths)
        yield _compared(said, twin.run(fed, lengths), lengths, tolerance)
        fed = said.tokens


def _compared(graph: Said, eager: Said, lengths: Sequence[int], tolerance: float) -> Step:
    difference = (graph.logits.double() - eager.logits.double()).abs().max().item()
    return Step(
        lengths=tuple(lengths),
        tokens=graph.tokens,
        eager_tokens=eager.tokens,
        difference=math.inf if math.isnan(difference) else difference,
        matches=graph.tokens == eager.tokens and difference <= tolerance,
    )
