"""Probes of memory, streams, threads and limits."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from torch.multiprocessing.reductions import StorageWeakRef

from npugraph_strategies._selftest._graphs import add, capturing, replayed, values
from npugraph_strategies._selftest._lab import elsewhere
from npugraph_strategies._selftest._probe import probe

if TYPE_CHECKING:
    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies._selftest._probe import Notes

__all__ = ["PROBES"]

_MANY: Final = 70_000  # more than a device has of anything that is counted here


@probe(
    "memory.in-pool",
    "Memory allocated during a capture comes from the graph's pool, and stays reserved after its tensor died",
    {"inside": "True", "outside": "False", "inside, after the end": "True", "result": "[6.0]"},
)
def _in_pool(lab: Lab, notes: Notes) -> None:
    outside, out = lab.tensor(2.0), lab.tensor(-1.0)
    with capturing(lab) as capture:
        inside = outside + outside
        notes.saw("inside", lab.runtime.in_pool(capture.graph, inside))
        add(inside, outside, out)
        capture.end()
    weak = lab.runtime.weak_view(inside)
    del inside
    notes.saw("outside", lab.runtime.in_pool(capture.graph, outside))
    notes.saw("inside, after the end", lab.runtime.in_pool(capture.graph, weak))
    replayed(lab, capture.graph)
    notes.saw("result", values(out))


@probe(
    "memory.shared-pool",
    "A later capture may share a graph's pool",
    {"second capture": "ok", "in the pool of the first": "True", "result": "[4.0]"},
)
def _shared_pool(lab: Lab, notes: Notes) -> None:
    x, y = lab.tensor(1.0), lab.tensor(2.0)
    with capturing(lab) as first:
        kept = x + x
        place = kept.data_ptr()
        del kept
        first.end()
    stream, graph = lab.runtime.new_stream(), lab.runtime.new_graph()
    with lab.runtime.stream(stream):
        graph.capture_begin(pool=first.graph.pool())
        later = y + y
        notes.call("second capture", graph.capture_end)
    notes.saw("in the pool of the first", lab.runtime.in_pool(first.graph, later))
    notes.saw("same block as a dead tensor of the first", later.data_ptr() == place)
    replayed(lab, graph)
    notes.saw("result", values(later))


@probe(
    "memory.weak-view",
    "A weak view has the geometry and the values of its tensor, and keeps nothing alive",
    {"geometry": "True", "values": "[2.0, 4.0]", "tensor died": "True"},
)
def _weak_view(lab: Lab, notes: Notes) -> None:
    tensor = lab.tensor(1.0, 2.0, 3.0, 4.0)[1::2]
    view = lab.runtime.weak_view(tensor)
    storage = StorageWeakRef(tensor.untyped_storage())  # type: ignore[no-untyped-call]  # torch leaves it untyped

    def geometry(one: Any) -> tuple[Any, ...]:
        return (one.shape, one.stride(), one.storage_offset(), one.dtype, one.data_ptr())

    notes.saw("geometry", geometry(view) == geometry(tensor))
    notes.saw("values", values(view))
    del tensor
    notes.saw("tensor died", storage.expired())  # type: ignore[no-untyped-call]  # torch leaves it untyped


@probe("stream.fresh-thread", "A fresh thread is on the default stream", {"on the default stream": "True"})
def _fresh_thread(lab: Lab, notes: Notes) -> None:
    default = elsewhere(lambda: lab.runtime.current_stream().stream_id)
    with lab.runtime.stream(lab.runtime.new_stream()):
        fresh = elsewhere(lambda: lab.runtime.current_stream().stream_id)
        notes.saw("on the default stream", fresh == default != lab.runtime.current_stream().stream_id)


@probe("stream.fresh-thread-device", "A fresh thread is on device 0", {"device": "0"}, only="npu")
def _fresh_thread_device(lab: Lab, notes: Notes) -> None:
    with lab.npu.device(lab.npu.device_count() - 1):
        notes.saw("device", elsewhere(lab.npu.current_device))
    notes.saw("devices", lab.npu.device_count())


@probe(
    "stream.pools",
    "A device hands out 32 ordinary streams and 4 synchronously launching ones, round robin",
    {"ordinary": "32", "synchronously launching": "4"},
    only="npu",
)
def _pools(lab: Lab, notes: Notes) -> None:
    notes.saw("ordinary", len({lab.npu.Stream().stream_id for _ in range(128)}))
    notes.saw("synchronously launching", len({lab.npu.SyncLaunchStream().stream_id for _ in range(128)}))


@probe("stream.task-queue", "The task queue is on by default, at level 1", {"level": "1 | 0"}, only="npu")
def _task_queue(_: Lab, notes: Notes) -> None:
    notes.saw("level", os.environ.get("TASK_QUEUE_ENABLE", "1"))
    notes.saw("launches block", os.environ.get("ASCEND_LAUNCH_BLOCKING", "0"))


@probe(
    "limit.events",
    "A device has so many events; one more is 207007",
    {"one more": "207007"},
    hazardous=True,
)
def _events(lab: Lab, notes: Notes) -> None:
    kept: list[Any] = []

    def take() -> None:
        for _ in range(_MANY):
            mark = lab.mark()
            mark.record(lab.runtime.current_stream())  # torch_npu makes an event when it is first recorded
            kept.append(mark)

    notes.call("one more", take)
    notes.saw("made", len(kept))


@probe(
    "limit.streams",
    "Every graph takes at least one stream; when none is left, a capture fails with 207008 or 207005",
    {"one more": "207008 | 207005"},
    hazardous=True,
)
def _streams(lab: Lab, notes: Notes) -> None:
    x, y, out = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(-1.0)
    kept: list[Any] = []

    def take() -> None:
        with lab.runtime.stream(lab.runtime.new_stream()):
            for _ in range(_MANY):
                graph = lab.runtime.new_graph()
                lab.begin(graph)
                add(x, y, out)
                graph.capture_end()
                kept.append(graph)

    notes.call("one more", take)
    notes.saw("graphs", len(kept))


PROBES: Final = (
    _in_pool,
    _shared_pool,
    _weak_view,
    _fresh_thread,
    _fresh_thread_device,
    _pools,
    _task_queue,
    _events,
    _streams,
)
