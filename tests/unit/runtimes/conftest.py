"""A stand-in for torch_npu, in its own vocabulary, and a runtime that only writes down what it is asked."""

from __future__ import annotations

import threading
from collections import defaultdict
from types import SimpleNamespace

import attrs
import pytest
import torch


class FakeStream:
    """``torch_npu.npu.Stream``: handed out round robin from a pool, as the real ones are."""

    kind = "Stream"
    pool_size = 32

    def __init__(self, world, stream_id, device_index):
        self.world = world
        self.stream_id = stream_id
        self.device_index = device_index
        self.device_type = 20

    def synchronize(self):
        self.world.say("Stream.synchronize", self.stream_id)


class FakeEvent:
    """``torch_npu.npu.ExternalEvent``."""

    def __init__(self, world):
        self.world = world
        world.say("ExternalEvent")

    def wait(self, stream=None):
        self.world.say("ExternalEvent.wait", stream.stream_id)

    def reset(self, stream=None):
        self.world.say("ExternalEvent.reset", stream.stream_id)

    def record(self, stream=None):
        self.world.say("ExternalEvent.record", stream.stream_id)


class FakeGraph:
    """``torch_npu.npu.NPUGraph``."""

    world = None  # set in a subclass: the real one takes no argument

    def __init__(self):
        self.auto_dispatch_capture = False
        self.world.say("NPUGraph")

    def capture_begin(self, pool=None, capture_error_mode="global"):
        self.world.say("NPUGraph.capture_begin", pool, capture_error_mode)
        self.world.capturing = True

    def capture_end(self):
        self.world.capturing = False
        self.world.say("NPUGraph.capture_end")

    def replay(self):
        self.world.say("NPUGraph.replay")

    def reset(self):
        self.world.say("NPUGraph.reset")

    def pool(self):
        self.world.say("NPUGraph.pool")
        if self.world.capturing:
            raise RuntimeError("Called NPUGraph::pool() without a preceding successful capture.")
        return (0, 7)


@attrs.define(eq=False)
class OnFakeDevice:
    """``torch_npu.npu.device``."""

    world: FakeWorld
    index: int
    before: int = -1

    def __enter__(self):
        self.before = self.world.here.device
        self.world.here.device = self.index
        self.world.switches += 1

    def __exit__(self, *exc):
        self.world.here.device = max(self.before, 0)
        return False


class Here(threading.local):
    """What each thread has of its own: its device (none at first) and a current stream per device."""

    def __init__(self):
        self.device = -1
        self.streams = defaultdict(int)


class FakeWorld:
    """The state behind the stand-in; `said` holds (device of the calling thread, name, *arguments)."""

    def __init__(self, devices=2):
        self.said = []
        self.here = Here()
        self.switches = 0
        self.devices = devices
        self.capturing = False
        self.fail = {}  # name of a call -> what it raises
        self.segments = []
        self.next_address = 0  # where the allocator has room
        self.made = defaultdict(int)

    def say(self, name, *args):
        self.said.append((self.here.device, name, *args))
        if name in self.fail:
            raise self.fail[name]

    def calls(self):
        """Return what was said, without the device."""
        return [entry[1:] for entry in self.said]

    def maker(self, kind, first_id, size):
        def make(device=None):
            del device  # the package enters the device and lets torch_npu take the current one
            stream = FakeStream(self, first_id + self.made[kind] % size, self.here.device)
            self.made[kind] += 1
            self.say(kind, stream.stream_id)
            return stream

        return make

    def module(self):
        def current_stream(device=None):
            return FakeStream(self, self.here.streams[device], device)

        def set_stream(stream_id, device_index, device_type):
            self.say("_npu_setStream", stream_id, device_index, device_type)
            self.here.device = device_index
            self.here.streams[device_index] = stream_id

        def told(name):
            return lambda *args: self.say(name, *(getattr(arg, "stream_id", arg) for arg in args))

        def task_group_end(stream):
            self.say("graph_task_group_end", stream.stream_id)
            return "handle"

        def snapshot():
            self.say("memory_snapshot")
            return self.segments

        npu = SimpleNamespace(
            Stream=self.maker("Stream", 1, 32),
            SyncLaunchStream=self.maker("SyncLaunchStream", 101, 4),
            ExternalEvent=lambda: FakeEvent(self),
            NPUGraph=type("NPUGraph", (FakeGraph,), {"world": self}),
            is_available=lambda: self.devices > 0,
            device_count=lambda: self.devices,
            current_device=lambda: max(self.here.device, 0),
            device=lambda index: OnFakeDevice(self, index),
            current_stream=current_stream,
            synchronize=told("synchronize"),
            empty_cache=told("empty_cache"),
            host_empty_cache=told("host_empty_cache"),
            is_current_stream_capturing=lambda: self.capturing,
            memory_snapshot=snapshot,
            caching_allocator_alloc=lambda _: self.next_address,
            caching_allocator_delete=told("caching_allocator_delete"),
            graph_task_group_begin=told("graph_task_group_begin"),
            graph_task_group_end=task_group_end,
            graph_task_update_begin=told("graph_task_update_begin"),
            graph_task_update_end=told("graph_task_update_end"),
        )
        binding = SimpleNamespace(
            _npu_getDeviceWithoutSet=lambda: self.here.device,
            _npu_getCurrentStream=lambda index: (self.here.streams[index], index, 20),
            _npu_setStream=set_stream,
            _weak_ref_tensor=lambda tensor: tensor.weak(),
        )
        compiler = SimpleNamespace(_config=SimpleNamespace(force_npugraph_gc=False))
        return SimpleNamespace(npu=npu, _C=binding, _compiler=compiler)


@pytest.fixture
def world():
    return FakeWorld()


@attrs.frozen
class PlainStream:
    stream_id: int


@attrs.define(eq=False)
class PlainEvent:
    asked: list
    label: str

    def wait(self, stream):
        self.asked.append(("event.wait", self.label, stream.stream_id))

    def reset(self, stream):
        self.asked.append(("event.reset", self.label, stream.stream_id))

    def record(self, stream):
        self.asked.append(("event.record", self.label, stream.stream_id))


@attrs.define(eq=False)
class PlainGraph:
    asked: list
    label: str
    task_count: int = 3

    def capture_begin(self, *, pool=None, capture_error_mode="global"):
        self.asked.append(("graph.capture_begin", self.label, pool, capture_error_mode))

    def capture_end(self):
        self.asked.append(("graph.capture_end", self.label))

    def replay(self):
        self.asked.append(("graph.replay", self.label))

    def reset(self):
        self.asked.append(("graph.reset", self.label))

    def pool(self):
        return "pool"


@attrs.define(eq=False)
class OnPlainStream:
    runtime: PlainRuntime
    stream: PlainStream
    before: PlainStream | None = None

    def __enter__(self):
        self.before, self.runtime.current = self.runtime.current, self.stream
        return self.stream

    def __exit__(self, *exc):
        self.runtime.current = self.before


@attrs.define(eq=False)
class PlainRuntime:
    """Every primitive of the protocol, written to `asked`; queries answer with fixed values."""

    asked: list = attrs.Factory(list)
    name: str = "plain:0"
    current: PlainStream = PlainStream(0)
    capture_lock: threading.RLock = attrs.Factory(threading.RLock)
    update_lock: object = attrs.Factory(threading.RLock)

    def device(self):
        return OnPlainStream(self, self.current)

    def current_stream(self):
        return self.current

    def new_stream(self):
        self.asked.append(("new_stream",))
        return PlainStream(5)

    def capture_stream(self):
        return PlainStream(1)

    def update_stream(self):
        return PlainStream(2)

    def stream(self, stream):
        return OnPlainStream(self, stream)

    def is_capturing(self):
        return False

    def new_event(self, label=""):
        self.asked.append(("new_event", label))
        return PlainEvent(self.asked, label)

    def new_graph(self, label=""):
        self.asked.append(("new_graph", label))
        return PlainGraph(self.asked, label)

    def adopt_graph(self, graph, label=""):
        return attrs.evolve(graph, label=label)

    def task_group_begin(self, stream):
        self.asked.append(("task_group_begin", stream.stream_id))

    def task_group_end(self, stream):
        self.asked.append(("task_group_end", stream.stream_id))
        return "handle"

    def task_update_begin(self, stream, handle):
        self.asked.append(("task_update_begin", stream.stream_id, handle))

    def task_update_end(self, stream):
        self.asked.append(("task_update_end", stream.stream_id))

    def is_device_tensor(self, tensor):
        return isinstance(tensor, torch.Tensor)

    def weak_view(self, tensor):
        return tensor.view_as(tensor)

    def in_pool(self, graph, tensor):
        del tensor
        return isinstance(graph, PlainGraph)

    def synchronize(self, stream=None):
        self.asked.append(("synchronize", None if stream is None else stream.stream_id))


@pytest.fixture
def plain():
    return PlainRuntime()


def run_every_primitive(runtime):
    """Use each primitive of a runtime once, as a capture, an update and a replay do."""
    origin = runtime.new_stream()
    graph = runtime.new_graph("g")
    with runtime.stream(origin):
        graph.capture_begin(pool="p", capture_error_mode="relaxed")
        event = runtime.new_event("e")
        event.wait(origin)
        event.reset(origin)
        runtime.task_group_begin(origin)
        handle = runtime.task_group_end(origin)
        graph.capture_end()
    update = runtime.update_stream()
    runtime.task_update_begin(update, handle)
    runtime.task_update_end(update)
    event.record(update)
    graph.replay()
    runtime.synchronize(update)
    graph.reset()


@pytest.fixture
def program():
    return run_every_primitive
