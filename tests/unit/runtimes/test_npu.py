from __future__ import annotations

import ast
import contextlib
import gc
import importlib.metadata
import sys
import threading
import weakref
from types import SimpleNamespace

import attrs
import pytest
import torch

from npugraph_strategies.errors import (
    AttachRefused,
    BadArguments,
    DeviceError,
    DeviceHang,
    ResourceExhausted,
    RuntimeUnavailable,
)
from npugraph_strategies.runtimes._device_errors import classify
from npugraph_strategies.runtimes._npu import NpuRuntime
from npugraph_strategies.runtimes._npu_module import NpuNamespace
from npugraph_strategies.runtimes._npu_objects import Segments


@pytest.fixture
def module(world):
    return world.module()


@pytest.fixture
def runtime(module):
    return NpuRuntime(1, torch_npu=module)


def in_thread(fn):
    """Run `fn` in a fresh thread, which is on no device, and return what it returns."""
    found = []
    thread = threading.Thread(target=lambda: found.append(fn()))
    thread.start()
    thread.join()
    return found[0]


@attrs.frozen(eq=False)
class FakeTensor:
    """The geometry of a tensor on an NPU; `forgetful` is what torch_npu 2.7.1 does to weak views."""

    shape: tuple = (4,)
    strides: tuple = (1,)
    offset: int = 0
    address: int = 0
    items: int = 64
    device: object = SimpleNamespace(type="npu", index=1)
    owned: bool = True
    forgetful: bool = False

    def size(self):
        return self.shape

    def stride(self):
        return self.strides

    def storage_offset(self):
        return self.offset

    def element_size(self):
        return 2

    def is_conj(self):
        return False

    def is_neg(self):
        return False

    def data_ptr(self):
        return self.address + 2 * self.offset

    def untyped_storage(self):
        return SimpleNamespace(nbytes=lambda: 2 * self.items, data_ptr=lambda: self.address)

    def as_strided(self, size, stride, offset):
        return attrs.evolve(self, shape=tuple(size), strides=tuple(stride), offset=offset)

    def weak(self):
        view = attrs.evolve(self, owned=False)
        return attrs.evolve(view, offset=0, address=self.data_ptr()) if self.forgetful else view


# -- making one ------------------------------------------------------------------------------------------------------


def test_a_failed_import_is_told_with_its_cause(monkeypatch):
    """Whatever the import raises stands behind the error."""
    monkeypatch.setitem(sys.modules, "torch_npu", None)  # Python's way to say: this import fails
    with pytest.raises(RuntimeUnavailable, match="torch_npu cannot be imported") as caught:
        NpuRuntime()
    assert isinstance(caught.value.__cause__, ImportError)


def test_torch_npu_is_imported_when_none_is_given(monkeypatch, module):
    """The module of that name is the one that is used."""
    monkeypatch.setitem(sys.modules, "torch_npu", module)
    assert NpuRuntime(0).name == "npu:0"


@pytest.mark.parametrize(("devices", "index", "problem"), [(0, 0, "no NPU"), (2, 2, "no npu:2"), (2, -1, "no npu:-1")])
def test_a_missing_device_is_refused_at_once(world, devices, index, problem):
    """Without the device there is no runtime."""
    world.devices = devices
    with pytest.raises(RuntimeUnavailable, match=problem):
        NpuRuntime(index, torch_npu=world.module())


@pytest.mark.parametrize("device", [1, "npu:1"])
def test_a_device_is_named_as_torch_names_it(module, device):
    """An index and a string with one mean the same device."""
    assert NpuRuntime(device, torch_npu=module).name == "npu:1"


def test_without_an_index_it_is_the_current_device(world, module):
    """None and a bare 'npu' are the device that the thread is on."""
    world.here.device = 1
    assert NpuRuntime(torch_npu=module).name == "npu:1"
    assert NpuRuntime("npu", torch_npu=module).name == "npu:1"


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu"), "npu:x", "npu:-1"])
def test_another_kind_of_device_is_refused(module, device):
    """Only NPUs are accepted, and the error shows what was given."""
    with pytest.raises(BadArguments, match="device must be an index"):
        NpuRuntime(device, torch_npu=module)


def test_the_repr_evaluates(module):
    """It shows the index."""
    assert repr(NpuRuntime(1, torch_npu=module)) == "NpuRuntime(1)"


def test_making_a_runtime_makes_no_stream(world, runtime):
    """Streams are made when first asked for."""
    assert world.said == []
    runtime.update_stream()
    assert world.calls() == [("SyncLaunchStream", 101)]


# -- devices ---------------------------------------------------------------------------------------------------------


def test_every_primitive_runs_on_the_device_from_any_thread(world, runtime, program):
    """A fresh thread, which is on no device, reaches device 1 with every call."""
    in_thread(lambda: program(runtime))
    assert {entry[0] for entry in world.said} == {1}


def test_the_device_of_the_thread_is_left_as_it_was(world, runtime, program):
    """After a program the calling thread is on its own device and stream."""
    world.here.device = 0
    world.here.streams[1] = 9
    program(runtime)
    assert world.here.device == 0
    assert world.here.streams[1] == 9


def test_no_switch_where_the_device_is_current(world, runtime, program):
    """On the right device nothing is switched."""
    world.here.device = 1
    before = world.switches
    with runtime.device():
        program(runtime)
    assert world.switches == before


def test_the_device_context_switches_and_restores(world, runtime):
    """Inside it the thread is on the device, after an error too."""
    world.here.device = 0
    inside = []
    with contextlib.suppress(KeyError), runtime.device():
        inside.append(world.here.device)
        raise KeyError
    assert inside == [1]
    assert world.here.device == 0


def test_one_capture_lock_per_device(module):
    """Runtimes of one device share the lock, those of two do not, and each has its own update lock."""
    first, second, other = (NpuRuntime(index, torch_npu=module) for index in (1, 1, 0))
    assert first.capture_lock is second.capture_lock
    assert first.capture_lock is not other.capture_lock
    assert first.update_lock is not second.update_lock


@pytest.mark.parametrize("name", ["update_lock", "capture_lock"])
def test_the_locks_are_reentrant(runtime, name):
    """Their owner may take them again, another thread may not."""
    lock = getattr(runtime, name)
    with lock, lock:
        assert in_thread(lambda: lock.acquire(blocking=False)) is False


# -- streams ---------------------------------------------------------------------------------------------------------


def test_owned_streams_are_made_once(world, runtime):
    """Asking again returns the same streams."""
    assert runtime.update_stream() is runtime.update_stream()
    assert runtime.capture_stream() is runtime.capture_stream()
    assert world.calls() == [("SyncLaunchStream", 101), ("Stream", 1)]


def test_without_synchronous_streams_an_ordinary_one_is_used(world, module):
    """An older torch_npu gives an ordinary stream for updates."""
    del module.npu.SyncLaunchStream
    NpuRuntime(1, torch_npu=module).update_stream()
    assert world.calls() == [("Stream", 1)]


def test_a_given_update_stream_is_used(runtime, module, world):
    """The caller's own stream is the update stream, and captures get another."""
    given = runtime.new_stream()
    mine = NpuRuntime(1, given, torch_npu=module)
    world.made["Stream"] = 0  # the pool is back at the stream that was given
    assert mine.update_stream() is given
    assert mine.capture_stream().stream_id != given.stream_id


@pytest.mark.parametrize("first", ["capture_stream", "update_stream"])
def test_update_and_capture_stream_differ(world, module, first):
    """Whichever is made second avoids the first, although the pool hands out the same stream."""
    del module.npu.SyncLaunchStream
    runtime = NpuRuntime(1, torch_npu=module)
    getattr(runtime, first)()
    world.made["Stream"] = 0
    assert runtime.update_stream().stream_id != runtime.capture_stream().stream_id


def test_the_update_stream_is_not_the_current_one(world, module):
    """The current stream is likely to replay, so updates get another."""
    del module.npu.SyncLaunchStream
    world.here.streams[1] = 1
    assert NpuRuntime(1, torch_npu=module).update_stream().stream_id == 2


def test_no_free_stream_is_an_error(module):
    """If the pool has only the stream in use, the tries end with a resource error."""
    runtime = NpuRuntime(1, torch_npu=module)
    module.npu.Stream = lambda: SimpleNamespace(stream_id=101)
    runtime.update_stream()
    with pytest.raises(ResourceExhausted, match=r"making the capture stream on npu:1 .*in use \(\[101\]\)"):
        runtime.capture_stream()


def test_threads_get_one_update_stream(world, runtime):
    """Many threads that ask at once get the same stream."""
    found = []
    threads = [threading.Thread(target=lambda: found.append(runtime.update_stream())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(stream) for stream in found}) == 1
    assert world.made["SyncLaunchStream"] == 1


def test_the_stream_context_sets_the_raw_stream_and_restores(world, runtime):
    """Two calls set it and set it back, on the right device, and an error changes nothing of that."""
    world.here.device = 1
    stream = runtime.new_stream()
    with contextlib.suppress(KeyError), runtime.stream(stream) as entered:
        assert entered is stream
        assert runtime.current_stream().stream_id == stream.stream_id
        raise KeyError
    assert world.calls()[-2:] == [("_npu_setStream", stream.stream_id, 1, 20), ("_npu_setStream", 0, 1, 20)]
    assert runtime.current_stream().stream_id == 0


def test_stream_contexts_nest(world, runtime):
    """Leaving the inner one returns to the outer one, from another device too."""
    world.here.device = 0
    outer, inner = runtime.new_stream(), runtime.new_stream()
    with runtime.stream(outer):
        with runtime.stream(inner):
            assert runtime.current_stream().stream_id == inner.stream_id
        assert runtime.current_stream().stream_id == outer.stream_id
    assert world.here.device == 0


def test_a_stream_that_cannot_be_entered_leaves_the_device(world, runtime):
    """If setting the stream fails, the thread is back on its device and the error is classified."""
    world.here.device = 0
    stream = runtime.new_stream()
    world.fail["_npu_setStream"] = RuntimeError("set stream failed, error code is 107003")
    with pytest.raises(DeviceError, match="stream on npu:1 failed with error code 107003"), runtime.stream(stream):
        pass
    assert world.here.device == 0


def test_the_current_stream_is_each_threads_own(world, runtime):
    """Threads on different streams get their own, and the same object as long as it does not change."""
    world.here.device = 1
    mine = runtime.new_stream()
    with runtime.stream(mine):
        assert runtime.current_stream() is runtime.current_stream()
        assert in_thread(lambda: runtime.current_stream().stream_id) == 0
        assert runtime.current_stream().stream_id == mine.stream_id


def test_synchronize_waits_for_a_stream_or_for_the_device(world, runtime):
    """With a stream only that one is waited for."""
    runtime.synchronize(runtime.new_stream())
    runtime.synchronize()
    assert world.calls()[1:] == [("Stream.synchronize", 1), ("synchronize",)]


# -- events, graphs, groups ------------------------------------------------------------------------------------------


def test_an_event_is_an_external_event(world, runtime):
    """Its three calls reach torch_npu's ExternalEvent with the stream."""
    stream = runtime.new_stream()
    event = runtime.new_event("e")
    event.wait(stream)
    event.reset(stream)
    event.record(stream)
    assert [call[0] for call in world.calls()[1:]] == [
        "ExternalEvent",
        "ExternalEvent.wait",
        "ExternalEvent.reset",
        "ExternalEvent.record",
    ]


def test_a_capture_prepares_as_torch_npu_does(world, runtime):
    """The device is idle and the caches are empty before the capture begins, in this order."""
    graph = runtime.new_graph()
    graph.capture_begin()
    assert runtime.is_capturing()
    graph.capture_end()
    assert not runtime.is_capturing()
    assert world.calls() == [
        ("NPUGraph",),
        ("synchronize",),
        ("empty_cache",),
        ("host_empty_cache",),
        ("NPUGraph.capture_begin", None, "global"),
        ("NPUGraph.capture_end",),
    ]


def test_a_second_capture_is_refused_before_it_breaks_the_first(world, runtime):
    """On a capturing stream nothing is prepared, since that would synchronise; the answer is the driver's."""
    runtime.new_graph().capture_begin()
    before = len(world.said)
    with pytest.raises(DeviceError) as caught:
        runtime.new_graph().capture_begin()
    assert caught.value.code == 107027
    assert [call[0] for call in world.calls()[before:]] == ["NPUGraph"]


def test_an_end_without_a_capture_does_not_reach_torch_npu(world, runtime):
    """torch_npu would count its captures wrong; the answer is the driver's."""
    graph = runtime.new_graph()
    with pytest.raises(DeviceError) as caught:
        graph.capture_end()
    assert caught.value.code == 107029
    assert ("NPUGraph.capture_end",) not in world.calls()


def test_pool_and_mode_are_handed_on(world, runtime):
    """The capture begins in the given pool and mode."""
    runtime.new_graph().capture_begin(pool=(0, 3), capture_error_mode="relaxed")
    assert world.calls()[-1] == ("NPUGraph.capture_begin", (0, 3), "relaxed")


def test_an_older_torch_npu_has_no_host_cache(world, module):
    """Without host_empty_cache the other preparations are made."""
    del module.npu.host_empty_cache
    NpuRuntime(1, torch_npu=module).new_graph().capture_begin()
    assert [call[0] for call in world.calls()] == ["NPUGraph", "synchronize", "empty_cache", "NPUGraph.capture_begin"]


class Loop:
    """Garbage that only the collector frees."""

    def __init__(self):
        self.me = self


@pytest.mark.parametrize(("setting", "alive"), [(False, True), (True, False), (None, False)])
def test_garbage_is_collected_where_torch_npu_collects_it(module, setting, alive):
    """The setting of torch_npu is followed; versions that have none always collect."""
    if setting is None:
        del module._compiler
    else:
        module._compiler._config.force_npugraph_gc = setting
    graph = NpuRuntime(1, torch_npu=module).new_graph()
    gc.collect()
    gc.disable()
    try:
        seen = weakref.ref(Loop())
        graph.capture_begin()
        assert (seen() is not None) == alive
    finally:
        gc.enable()


def test_a_graph_is_replayed_and_reset(world, runtime):
    """Both reach NPUGraph, and torch_npu does not say how many tasks there are."""
    graph = runtime.new_graph("g")
    graph.replay()
    graph.reset()
    assert world.calls() == [("NPUGraph",), ("NPUGraph.replay",), ("NPUGraph.reset",)]
    assert graph.task_count is None


def test_groups_and_updates_are_torch_npus_functions(world, runtime):
    """Stream and handle are handed on, and the handle comes back."""
    stream = runtime.new_stream()
    runtime.task_group_begin(stream)
    assert runtime.task_group_end(stream) == "handle"
    runtime.task_update_begin(stream, "handle")
    runtime.task_update_end(stream)
    assert world.calls()[1:] == [
        ("graph_task_group_begin", 1),
        ("graph_task_group_end", 1),
        ("graph_task_update_begin", 1, "handle"),
        ("graph_task_update_end", 1),
    ]


def test_a_callers_graph_is_adopted(world, runtime, module):
    """A graph of the caller's is replayed through the runtime."""
    native = module.npu.NPUGraph()
    runtime.adopt_graph(native, "theirs").replay()
    assert world.said[-1] == (1, "NPUGraph.replay")


def test_a_graph_that_dispatches_by_itself_is_not_adopted(runtime, module):
    """With auto_dispatch_capture both would record."""
    native = module.npu.NPUGraph()
    native.auto_dispatch_capture = True
    with pytest.raises(AttachRefused, match="auto_dispatch_capture=False"):
        runtime.adopt_graph(native)


@pytest.mark.parametrize("graph", [None, "a graph", SimpleNamespace(auto_dispatch_capture=False)])
def test_only_native_graphs_are_adopted(runtime, graph):
    """Anything else is refused with what was expected."""
    with pytest.raises(AttachRefused, match=r"expected a torch\.npu\.NPUGraph"):
        runtime.adopt_graph(graph)


def test_a_graph_of_an_older_torch_npu_is_adopted(runtime, module):
    """Versions without the flag never dispatch by themselves."""
    native = module.npu.NPUGraph()
    del native.auto_dispatch_capture
    runtime.adopt_graph(native).replay()


# -- errors ----------------------------------------------------------------------------------------------------------

FAILING = {
    "graph.capture_begin": "NPUGraph.capture_begin",
    "graph.capture_end": "NPUGraph.capture_end",
    "graph.replay": "NPUGraph.replay",
    "graph.reset": "NPUGraph.reset",
    "event.wait": "ExternalEvent.wait",
    "event.reset": "ExternalEvent.reset",
    "event.record": "ExternalEvent.record",
    "new_event": "ExternalEvent",
    "new_graph": "NPUGraph",
    "new_stream": "Stream",
    "task_group_begin": "graph_task_group_begin",
    "task_group_end": "graph_task_group_end",
    "task_update_begin": "graph_task_update_begin",
    "task_update_end": "graph_task_update_end",
    "synchronize": "Stream.synchronize",
}


@pytest.mark.parametrize("primitive", FAILING)
def test_every_failure_is_classified(world, runtime, program, primitive):
    """The error names primitive and device, has the code, and keeps text and cause."""
    original = RuntimeError("call failed, error code is 107033\n[ERROR] (PID:507046, Device:1)")
    world.fail[FAILING[primitive]] = original
    with pytest.raises(DeviceError) as caught:
        program(runtime)
    assert caught.value.code == 107033
    assert caught.value.doing.startswith(primitive)
    assert caught.value.doing.endswith("npu:1")
    assert str(original) in caught.value.problem
    assert caught.value.__cause__ is original


def test_a_failure_names_event_and_graph(world, runtime):
    """The label that the object was made with is in the sentence."""
    world.fail["NPUGraph.replay"] = RuntimeError("error code is 507903")
    with pytest.raises(DeviceError, match=r"^graph\.replay of 'decode' on npu:1 failed with error code 507903"):
        runtime.new_graph("decode").replay()


def test_an_error_without_a_code_is_left_alone(world, runtime):
    """What is not the device speaking reaches the caller as it was raised."""
    original = RuntimeError("expected a stream")
    world.fail["synchronize"] = original
    with pytest.raises(RuntimeError) as caught:
        runtime.synchronize()
    assert caught.value is original
    assert caught.value.__cause__ is None


@pytest.mark.parametrize("code", [207005, 207007, 207008])
def test_exhaustion_is_one_error(code):
    """The three codes for streams and events become a resource error."""
    found = classify(RuntimeError(f"aclrtCreateEventWithFlag, error code is {code}"))
    assert isinstance(found, ResourceExhausted)
    assert found.code == code


def test_a_known_code_is_explained_and_an_unknown_one_is_quoted():
    """Cause, name and remedy stand before the original text, which is alone where nothing is known."""
    known = classify(RuntimeError("error code is 107031"))
    assert known.problem.startswith("the default stream cannot be captured (")
    assert known.problem.endswith("The device said: error code is 107031")
    assert classify(RuntimeError("error code is 999999")).problem == "error code is 999999"


def test_exhaustion_is_known_by_its_words():
    """The driver's wording is enough, with or without a code."""
    assert isinstance(classify(RuntimeError("EE9999: Alloc sq cq fail, drvRetCode=7")), ResourceExhausted)
    assert classify(RuntimeError("Alloc sq cq fail, error code is 507000")).code == 507000


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NPU function error: aclmdlRICaptureBegin, error code is 107027", 107027),
        ("NPU error,NPU error code is:507035", 507035),
        ("The Inner error, ErrorCode=561002.", 561002),
        ("[Error]: rtModelExecute returned 507011 (task failed)", 507011),
        ("at 2031-01-07-10:00:00 (PID:107027, Device:0) error code is 207007", 207007),
    ],
)
def test_codes_are_found_in_text(text, code):
    """The code is read from the words around it, else from the runtime's own ranges."""
    assert classify(RuntimeError(text)).code == code


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("(PID:107027, Device:0) shapes differ"),
        RuntimeError("size 1070271 is too large"),
        RuntimeError("took 507046.5 ms"),
        RuntimeError("error code is 12"),
        ValueError("error code is 107027"),
        torch.OutOfMemoryError("NPU out of memory, error code is 207001"),
    ],
)
def test_what_is_not_a_device_code_is_not_classified(error):
    """Numbers that only look like codes, other errors, and torch's own out-of-memory error stay as they are."""
    assert classify(error) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Called NPUGraph::replay without a preceding successful capture.", 107017),
        ("This NPUGraph instance already owns a captured graph.", 107027),
        ("NPU graphs must be captured on a non-default stream.", 107031),
        ("Capture must end on the same stream it began on.", 107036),
    ],
)
def test_what_torch_npu_refuses_by_itself_has_the_drivers_code(text, code):
    """Whether torch_npu or the driver refuses, the error is the same."""
    assert classify(RuntimeError(text)).code == code


def test_a_timeout_is_a_hang():
    """507046 says that a stream did not finish."""
    assert isinstance(classify(RuntimeError("error code is 507046")), DeviceHang)


def test_a_classified_error_is_not_classified_again(world, runtime):
    """A DeviceError passes as it is."""
    known = DeviceError(107033, "somewhere", "error code is 207008")
    assert classify(known) is known
    world.fail["synchronize"] = known
    with pytest.raises(DeviceError) as caught:
        runtime.synchronize()
    assert caught.value is known


# -- tensors ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "index", "expected"), [("npu", 1, True), ("npu", 0, False), ("cpu", None, False), ("cpu", 1, False)]
)
def test_a_device_tensor_lies_on_this_device(runtime, kind, index, expected):
    """Kind and index of the device have to be right."""
    assert runtime.is_device_tensor(FakeTensor(device=SimpleNamespace(type=kind, index=index))) is expected


def test_a_weak_view_of_another_device_is_refused(runtime):
    """torch_npu would crash on it, so it is never asked."""
    with pytest.raises(BadArguments, match="the tensor lies on cpu, expected npu:1"):
        runtime.weak_view(torch.zeros(2))


@pytest.mark.parametrize("forgetful", [False, True])
def test_a_weak_view_has_the_geometry_of_the_original(runtime, forgetful):
    """Sizes, strides, offset and address are the same, also where torch_npu loses the offset."""
    tensor = FakeTensor((2, 1, 8, 64), (1536, 0, 192, 1), 128, 0x9000, 4096, forgetful=forgetful)
    view = runtime.weak_view(tensor)
    assert (view.size(), view.stride(), view.storage_offset()) == (tensor.size(), tensor.stride(), 128)
    assert view.data_ptr() == tensor.data_ptr()
    assert not view.owned


def segment(address, size, pool, device=1):
    return {"device": device, "address": address, "total_size": size, "segment_pool_id": pool}


@pytest.mark.parametrize(
    ("address", "expected"),
    [(0xFFF, False), (0x1000, True), (0x1FFF, True), (0x2000, False), (0x5000, True), (0x8000, False), (0, False)],
)
def test_an_address_is_looked_up_in_the_graphs_segments(world, runtime, address, expected):
    """Only the ranges of the graph's own pool count, their ends excluded."""
    world.segments = [segment(0x5000, 0x100, (0, 7)), segment(0x8000, 0x100, (0, 0)), segment(0x1000, 0x1000, (0, 7))]
    assert runtime.in_pool(runtime.new_graph(), FakeTensor(address=address)) is expected


def test_another_devices_addresses_are_its_own(world, runtime):
    """Two devices may use the same addresses; a graph lies on one."""
    world.segments = [segment(0x1000, 0x1000, (0, 7), device=0), segment(0x1000, 0x1000, (0, 0))]
    assert not runtime.in_pool(runtime.new_graph(), FakeTensor(address=0x1000))


def test_one_snapshot_is_taken_for_a_captured_graph(world, runtime):
    """After the capture has ended the allocator is asked once, whatever it knows."""
    world.segments = [segment(0x1000, 0x1000, (0, 7)), segment(0x5000, 0x1000, (0, 0))]
    graph = runtime.new_graph()
    graph.capture_begin()
    graph.capture_end()
    for address in (0x1000, 0x5000, 0x9000, 0x9000):
        runtime.in_pool(graph, FakeTensor(address=address))
    assert world.calls().count(("memory_snapshot",)) == 1


def test_what_is_allocated_during_the_capture_is_found(world, runtime):
    """While it goes on, torch_npu does not name the pool: it is where memory is allocated; what is new is looked up."""
    graph = runtime.new_graph()
    graph.capture_begin()
    world.segments = [segment(0x1000, 0x1000, (0, 7)), segment(0x5000, 0x1000, (0, 0))]
    world.next_address = 0x1200
    assert not runtime.in_pool(graph, FakeTensor(address=0x5000))
    assert runtime.in_pool(graph, FakeTensor(address=0x1800))
    assert world.calls().count(("memory_snapshot",)) == 1
    world.segments.append(segment(0x8000, 0x1000, (0, 7)))
    assert runtime.in_pool(graph, FakeTensor(address=0x8000))
    assert world.calls().count(("memory_snapshot",)) == 2
    assert world.calls().count(("caching_allocator_delete", 0x1200)) == 3


def test_the_end_of_the_capture_makes_earlier_answers_void(world, runtime):
    """What was seen during the capture is looked at afresh after it."""
    graph = runtime.new_graph()
    graph.capture_begin()
    runtime.in_pool(graph, FakeTensor(address=0x1000))
    world.segments = [segment(0x1000, 0x1000, (0, 7))]
    graph.capture_end()
    assert runtime.in_pool(graph, FakeTensor(address=0x1000))


def test_a_tensor_elsewhere_is_in_no_pool(world, runtime):
    """A host tensor is not looked up at all."""
    assert runtime.in_pool(runtime.new_graph(), torch.zeros(2)) is False
    assert ("memory_snapshot",) not in world.calls()


def test_a_snapshot_without_pools_is_an_error():
    """Otherwise every intermediate would pass for the caller's."""
    with pytest.raises(RuntimeUnavailable, match="segment_pool_id"):
        Segments.of([{"address": 0, "total_size": 1}])


# -- the real thing, where it is installed ---------------------------------------------------------------------------


def sources(*names):
    """Return the syntax trees of files of the installed torch_npu, which is not imported; skip if there is none."""
    try:
        files = importlib.metadata.files("torch-npu") or []
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("torch-npu is not installed")
    paths = {str(file): file.locate() for file in files}
    return [ast.parse(paths[f"torch_npu/npu/{name}"].read_text(encoding="utf-8")) for name in names]


def exported(tree):
    """Return the names in a module's __all__."""
    return next(
        set(ast.literal_eval(node.value))
        for node in tree.body
        if isinstance(node, ast.Assign) and node.targets[0].id == "__all__"
    )


def test_the_installed_torch_npu_exports_what_is_used():
    """Every name that the protocol of the namespace has is public in torch_npu.npu."""
    (tree,) = sources("__init__.py")
    assert set(NpuNamespace.__annotations__) - exported(tree) == set()


def test_the_installed_graph_takes_pool_and_mode():
    """NPUGraph.capture_begin still has the two arguments that are handed on, under these names."""
    (tree,) = sources("graphs.py")
    functions = [
        node
        for cls in tree.body
        if isinstance(cls, ast.ClassDef) and cls.name == "NPUGraph"
        for node in cls.body
        if isinstance(node, ast.FunctionDef) and node.name == "capture_begin"
    ]
    assert [argument.arg for argument in functions[0].args.args] == ["self", "pool", "capture_error_mode"]
