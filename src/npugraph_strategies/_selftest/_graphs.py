"""Small graphs for probes, which put their streams in order whatever happens."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any, Final, final

import attrs
import torch

from npugraph_strategies._selftest._lab import quietly

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from torch import Tensor

    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies.runtimes import RuntimeEvent, RuntimeGraph, RuntimeStream

__all__ = ["Capture", "Group", "add", "capturing", "grouped", "replay", "replayed", "update", "values"]

_UNTOUCHED: Final = -1.0


def add(x: Tensor, y: Tensor, out: Tensor) -> None:
    """Launch one operator, of one kernel, that allocates nothing."""
    torch.add(x, y, out=out)


def values(tensor: Tensor) -> str:
    """Return what a tensor holds, as text; the host waits for the current stream."""
    return str(tensor.tolist())


@final
@attrs.define(eq=False)
class Capture:
    """A capture that is going on."""

    stream: RuntimeStream
    graph: RuntimeGraph
    over: bool = False

    def end(self) -> None:
        """End it; a failed end is an end too."""
        self.over = True
        self.graph.capture_end()


@contextlib.contextmanager
def capturing(lab: Lab, mode: str = "global", *, direct: bool = False) -> Iterator[Capture]:
    """Capture on a stream of its own, which is free afterwards, whether the block ends the capture or not."""
    stream = lab.direct_stream() if direct else lab.runtime.new_stream()
    graph = lab.runtime.new_graph()
    with lab.runtime.stream(stream):
        graph.capture_begin(capture_error_mode=mode)
        capture = Capture(stream, graph)
        try:
            yield capture
        finally:
            if not capture.over:
                with quietly():
                    capture.end()


def replay(lab: Lab, graph: RuntimeGraph, stream: RuntimeStream) -> None:
    """Launch a graph on a stream; return when it has reached the driver, and do not wait for it."""
    with lab.runtime.stream(stream):
        graph.replay()
    lab.settle(stream)


def replayed(lab: Lab, graph: RuntimeGraph) -> None:
    """Launch a graph on a stream of its own, and wait for it."""
    stream = lab.runtime.new_stream()
    replay(lab, graph, stream)
    lab.runtime.synchronize(stream)


@final
@attrs.frozen(eq=False)
class Group:
    """A graph of one task group, ``out = x + y`` with x = 1 and y = 10; it waits for `event` first if there is one."""

    graph: RuntimeGraph
    handle: Any
    x: Tensor
    y: Tensor
    out: Tensor
    event: RuntimeEvent | None


def grouped(lab: Lab, *, waits: bool = False) -> Group:
    """Capture a graph of one task group."""
    runtime = lab.runtime
    x, y, out = lab.tensor(1.0), lab.tensor(10.0), lab.tensor(_UNTOUCHED)
    event = runtime.new_event("before the task group") if waits else None
    with capturing(lab) as capture:
        if event is not None:
            event.wait(capture.stream)
        runtime.task_group_begin(capture.stream)
        add(x, y, out)
        handle = runtime.task_group_end(capture.stream)
        capture.end()
    return Group(capture.graph, handle, x, y, out, event)


def update(lab: Lab, handle: Any, launch: Callable[[], object], stream: RuntimeStream | None = None) -> None:
    """Replace a group's operators by what `launch` launches; the stream is free afterwards."""
    stream = lab.runtime.update_stream() if stream is None else stream
    lab.runtime.task_update_begin(stream, handle)
    try:
        with lab.runtime.stream(stream):
            launch()
    finally:
        lab.runtime.task_update_end(stream)
