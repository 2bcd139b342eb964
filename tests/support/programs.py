"""Random programs of primitives, right ones and wrong ones, and what a device makes of them.

A program is a list of instructions, each a tuple of a name and small numbers. `World.do` runs one and returns its
outcome: ``"ok"``, what it read, or the error that it gave. Two devices agree when all outcomes do.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import attrs
import torch

from npugraph_strategies.errors import CaptureError, DeviceHang
from npugraph_strategies.runtimes._device_errors import classify
from support.story import attn

if TYPE_CHECKING:
    from collections.abc import Iterator

    from support.bench import Bench

__all__ = ["World", "program", "shown"]

Instruction = tuple[Any, ...]

DEFAULT, ORIGIN, SIDE, UPDATE = range(4)
GRAPHS, EVENTS, TENSORS = 2, 4, 4

OPERATORS = {
    "add": lambda x, out, k: torch.add(x, k, out=out),
    "half": lambda x, out, k: torch.mul(x, 0.5 * k, out=out),
    "attn": lambda x, out, k: attn.out(x, lens=[k], out=out),
    "fresh": lambda x, out, k: out.copy_((x + k) * 0.5),
    "turned": lambda x, out, k: out.view(2, 2).t().copy_(x.view(2, 2) + k),
    "slice": lambda x, out, k: out[1:3].add_(x[:2], alpha=k),
}
UPDATABLE = ("add", "half", "attn")


class World:
    """One device with a few streams, events, graphs and tensors."""

    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.runtime = runtime = bench.runtime()
        self.streams = [runtime.current_stream(), runtime.new_stream(), runtime.new_stream(), runtime.update_stream()]
        self.events = [runtime.new_event(f"event {n}") for n in range(EVENTS)]
        self.graphs = [runtime.new_graph(f"graph {n}") for n in range(GRAPHS)]
        self.tensors = [bench.tensor([float(n), 1.0, 2.0, 3.0]) for n in range(TENSORS)]
        self.groups: list[tuple[Any, list[Instruction]]] = []
        self.open: list[Instruction] | None = None
        self.updating = False

    def do(self, instruction: Instruction) -> str:
        """Run one instruction; return its outcome."""
        name, *arguments = instruction
        try:
            result = getattr(self, f"_{name}")(*arguments)
        except CaptureError:  # what would have to wait on the host: a device says it with a code of its own
            return "refused"
        except RuntimeError as error:
            known = classify(error)
            return f"{type(error).__name__}: {error}" if known is None else f"{type(known).__name__} {known.code}"
        return "ok" if result is None else str(result)

    @property
    def broken(self) -> bool:
        """Tell whether a capture goes on that cannot end well; only a simulated device says it."""
        return bool(self.streams[ORIGIN].capture and self.streams[ORIGIN].capture.failure)

    def close(self) -> None:
        """End what is open and let go of what waits, so that nothing of this world is left on the device."""
        for stream in (ORIGIN, SIDE, UPDATE, DEFAULT):
            self.do(("end_update", stream))
        for graph in range(GRAPHS):
            for stream in (ORIGIN, SIDE):
                self.do(("end", graph, stream))
        self.do(("feed",))
        for graph in range(GRAPHS):
            self.do(("reset", graph))

    # -- instructions ------------------------------------------------------------------------------------------------

    def _begin(self, graph, stream, mode="global"):
        with self.runtime.stream(self.streams[stream]):
            self.graphs[graph].capture_begin(capture_error_mode=mode)

    def _end(self, graph, stream):
        with self.runtime.stream(self.streams[stream]):
            self.graphs[graph].capture_end()

    def _op(self, stream, operator, x, out, k):
        if self.open is not None:
            self.open.append(("op", operator, x, out))
        with self.runtime.stream(self.streams[stream]):
            OPERATORS[operator](self.tensors[x], self.tensors[out], k)

    def _read(self, stream, x):
        with self.runtime.stream(self.streams[stream]):
            self.tensors[x].sum().item()

    def _look(self):
        return [tensor.tolist() for tensor in self.tensors]

    def _wait(self, event, stream):
        self.events[event].wait(self.streams[stream])

    def _record(self, event, stream):
        self.events[event].record(self.streams[stream])

    def _join(self, before, after):
        self.bench.join(self.runtime, self.streams[before], self.streams[after])

    def _group(self, stream):
        self.runtime.task_group_begin(self.streams[stream])
        self.open = []

    def _end_group(self, stream):
        launched, self.open = self.open or [], None
        self.groups.append((self.runtime.task_group_end(self.streams[stream]), launched))

    def _update(self, stream, group):
        if self.groups:
            self.runtime.task_update_begin(self.streams[stream], self.groups[group % len(self.groups)][0])
            self.updating = True

    def _relaunch(self, stream, group, k):
        if self.updating:  # otherwise these would run at once, beside whatever replays
            for _, operator, x, out in self.groups[group % len(self.groups)][1]:
                self._op(stream, operator, x, out, k)

    def _end_update(self, stream):
        self.updating = False
        self.runtime.task_update_end(self.streams[stream])

    def _replay(self, graph, stream):
        with self.runtime.stream(self.streams[stream]):
            self.graphs[graph].replay()

    def _reset(self, graph):
        self.graphs[graph].reset()

    def _sync(self, stream=None):
        self.runtime.synchronize(None if stream is None else self.streams[stream])

    def _feed(self):
        """Signal every event until nothing waits any more."""
        for _ in range(4):
            for event in self.events:
                event.record(self.streams[UPDATE])
            try:
                self.runtime.synchronize()
            except DeviceHang:
                continue
            break


# -- programs ----------------------------------------------------------------------------------------------------------


@attrs.define
class _Writer:
    """Writes a program that is mostly right: it knows which events a replay of each graph consumes."""

    rng: random.Random
    waits: dict[int, list[int]] = attrs.field(factory=dict)
    groups: int = 0

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def op(self, stream: int, names: tuple[str, ...] = tuple(OPERATORS)) -> Instruction:
        rng = self.rng
        x, out = rng.sample(range(TENSORS), 2)
        return ("op", stream, rng.choice(names), x, out, rng.randint(-3, 3))

    def handled(self, event: int) -> Iterator[Instruction]:
        yield ("wait", event, ORIGIN)
        yield ("group", ORIGIN)
        for _ in range(self.rng.choice((1, 1, 2))):
            yield self.op(ORIGIN, UPDATABLE)
        if self.chance(0.06):
            yield self.rng.choice((("group", ORIGIN), ("op", SIDE, "add", 0, 1, 1), ("record", 3, ORIGIN)))
        yield ("end_group", ORIGIN)
        self.groups += 1

    def capture(self, graph: int) -> Iterator[Instruction]:
        rng, events = self.rng, []
        yield ("begin", graph, ORIGIN if not self.chance(0.03) else DEFAULT, rng.choice(("global", "relaxed")))
        for _ in range(rng.randint(1, 4)):
            kind = rng.choice(("op", "op", "handled", "side"))
            if kind == "op":
                yield self.op(ORIGIN)
            elif kind == "handled" and len(events) < 2:
                events.append(2 * graph + len(events))
                yield from self.handled(events[-1])
            elif kind == "side":
                yield ("join", ORIGIN, SIDE)
                step = self.op(SIDE)
                # Nothing is allocated there: behind the task queue, memory for a stream that has just joined is now and
                # then not in the graph's pool (docs/explanation/what-torch-npu-does.md).
                yield (*step[:2], "add", *step[3:]) if step[2] in {"fresh", "turned"} else step
                if self.chance(0.1):
                    break
                yield ("join", SIDE, ORIGIN)  # at once: the two streams use the same tensors
            if self.chance(0.08):
                yield self.wrong_in_capture(graph)
        yield ("end", graph, ORIGIN)
        self.waits[graph] = events

    def wrong_in_capture(self, graph: int) -> Instruction:
        return self.rng.choice(
            (
                ("begin", 1 - graph, ORIGIN),
                ("end", graph, SIDE),
                ("end_group", ORIGIN),
                ("update", ORIGIN, 0),
                ("end_update", ORIGIN),
                ("replay", min(self.waits), ORIGIN) if self.waits else ("sync",),
                ("sync", ORIGIN),
                ("sync",),
                ("read", ORIGIN, 0),
                ("join", SIDE, ORIGIN),
            )
        )

    def use(self, graph: int) -> Iterator[Instruction]:
        rng, events = self.rng, self.waits.get(graph, [])
        kind = rng.choice(("step", "step", "step", "eager", "wrong"))
        if kind == "eager":
            yield self.op(DEFAULT)
        elif kind == "step":
            for group in range(self.groups):
                if self.chance(0.6):
                    yield from (
                        ("update", UPDATE, group),
                        ("relaunch", UPDATE, group, rng.randint(-3, 3)),
                        ("end_update", UPDATE),
                    )
            yield from (("record", event, UPDATE) for event in events)
            yield ("replay", graph, DEFAULT)
        else:
            yield from self.wrong(graph)
        yield ("sync",)
        yield ("feed",) if kind == "wrong" else ("sync", UPDATE)
        yield ("look",)

    def wrong(self, graph: int) -> Iterator[Instruction]:
        group = self.rng.randrange(max(self.groups, 1))
        yield from self.rng.choice(
            (
                [("replay", graph, DEFAULT)],
                [("update", UPDATE, group), ("update", UPDATE, group), ("end_update", UPDATE)],
                [("update", UPDATE, group), ("update", SIDE, group), ("end_update", UPDATE)],
                [
                    ("update", UPDATE, group),
                    ("relaunch", UPDATE, group, 1),
                    ("relaunch", UPDATE, group, 2),
                    ("end_update", UPDATE),
                ],
                [("update", UPDATE, group), ("op", UPDATE, "turned", 0, 1, 1), ("end_update", UPDATE)],
                [("update", UPDATE, group), ("end_update", UPDATE), ("replay", graph, DEFAULT)],
                [("end_update", UPDATE)],
                [("end", graph, ORIGIN)],
                [("group", ORIGIN)],
                [("end_group", ORIGIN)],
                [("reset", graph), ("replay", graph, DEFAULT), ("update", UPDATE, group), ("end_update", UPDATE)],
            )
        )


def program(seed: int) -> list[Instruction]:
    """Write the program of a seed."""
    writer = _Writer(random.Random(seed))
    found: list[Instruction] = []
    for graph in range(writer.rng.randint(1, GRAPHS)):
        found += writer.capture(graph)
        for _ in range(writer.rng.randint(1, 4)):
            found += writer.use(writer.rng.randint(0, graph))
    return found


def shown(instructions: list[Instruction]) -> str:
    """Write a program for people, an instruction a line."""
    return "\n".join(f"    ({', '.join(map(repr, instruction))})," for instruction in instructions)
