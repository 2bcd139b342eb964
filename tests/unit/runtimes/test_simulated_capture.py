"""The simulated device keeps CANN's rules of capture."""

from __future__ import annotations

import gc
import threading

import numpy as np
import pytest
import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from npugraph_strategies.errors import DeviceError, NotCapturable, ResourceExhausted
from npugraph_strategies.runtimes._simulated import Limits, SimulatedDevice, SimulatedRuntime, StreamEvent


@pytest.fixture
def runtime():
    return SimulatedRuntime()


def captured(runtime, code, label="decoder", **options):
    graph = runtime.new_graph(label)
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin(**options)
        try:
            result = code()
        finally:
            graph.capture_end()
    return graph, result


def code_of(action):
    with pytest.raises(DeviceError) as caught:
        action()
    return caught.value.code


def in_thread(action):
    caught = []

    def run():
        try:
            action()
        except DeviceError as error:
            caught.append(error.code)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return caught


def test_captured_work_does_not_run_and_outputs_are_poisoned(runtime):
    """Captured work is stored; floats read NaN before the first replay and integers an odd pattern."""
    x = torch.ones(3)
    _, (floats, ints, flags) = captured(runtime, lambda: (x * 2, x.to(torch.int32) + 1, x > 0))
    assert floats.isnan().all()
    assert (ints == torch.tensor(0xA5A5A5A5 - 2**32, dtype=torch.int32)).all()
    assert flags.all()


def test_in_place_work_on_a_caller_s_tensor_waits_for_the_replay(runtime):
    """A captured in-place operator leaves its target alone until the replay."""
    x = torch.zeros(2)
    graph, _ = captured(runtime, lambda: x.add_(1))
    assert x.tolist() == [0, 0]
    graph.replay()
    assert x.tolist() == [1, 1]


def test_a_replay_reads_the_operands_of_today(runtime):
    """Every replay computes from what the operands hold then."""
    x = torch.ones(2)
    graph, y = captured(runtime, lambda: (x * 2).exp() + 1)
    for value in (0.0, 3.0):
        x.fill_(value)
        graph.replay()
        assert torch.equal(y, (x * 2).exp() + 1)


def test_task_count_counts_operators_only(runtime):
    """Views, allocations and constants are no tasks."""
    x = torch.ones(4)

    def code():
        y = torch.empty(2, 2)
        y.copy_(x.view(2, 2).t())
        return y[0] + torch.tensor(1.0)

    graph, _ = captured(runtime, code)
    assert graph.task_count == 2
    graph.reset()
    assert graph.task_count is None


def test_the_default_stream_cannot_capture(runtime):
    """Stream 0 answers 107031, and nothing is left behind."""
    graph = runtime.new_graph()
    assert runtime.current_stream().stream_id == 0
    assert code_of(graph.capture_begin) == 107031
    assert not runtime.is_capturing()
    assert runtime.simulated_device.streams.in_use == 0


def test_begin_on_a_capturing_stream(runtime):
    """A second begin on the stream answers 107027, and the first capture goes on."""
    x = torch.ones(1)

    def code():
        assert runtime.is_capturing()
        assert code_of(runtime.new_graph().capture_begin) == 107027
        return x + 1

    graph, y = captured(runtime, code)
    graph.replay()
    assert y.item() == 2
    assert not runtime.is_capturing()


def test_end_without_begin(runtime):
    """Ending what never began answers 107029."""
    with runtime.stream(runtime.capture_stream()):
        assert code_of(runtime.new_graph().capture_end) == 107029


def test_end_on_a_stream_that_is_not_capturing(runtime):
    """Ending on another stream answers 107029; the capture can still be ended where it began."""
    graph = runtime.new_graph()
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        with runtime.stream(runtime.new_stream()):
            assert code_of(graph.capture_end) == 107029
        graph.capture_end()
    assert graph.task_count == 0


def test_end_on_a_joined_stream(runtime):
    """Ending on a stream that joined answers 107036."""
    origin, side = runtime.capture_stream(), runtime.new_stream()
    graph, fork, join = (
        runtime.new_graph(),
        StreamEvent(runtime.simulated_device),
        StreamEvent(runtime.simulated_device),
    )
    with runtime.stream(origin):
        graph.capture_begin()
        fork.record(origin)
        fork.wait(side)
        with runtime.stream(side):
            assert runtime.is_capturing()
            assert code_of(graph.capture_end) == 107036
        join.record(side)
        join.wait(origin)
        graph.capture_end()


@pytest.mark.parametrize(("mode", "codes"), [("global", [107038]), ("thread_local", [107038]), ("relaxed", [])])
def test_end_from_another_thread(runtime, mode, codes):
    """Only a relaxed capture may be ended by another thread (else 107038)."""
    stream, x = runtime.capture_stream(), torch.ones(1)
    graph = runtime.new_graph()

    def end():
        with runtime.stream(stream):
            graph.capture_end()

    with runtime.stream(stream):
        graph.capture_begin(capture_error_mode=mode)
        y = x + 1
        assert in_thread(end) == codes
        if codes:
            graph.capture_end()
        assert (x + 1).item() == 2  # this thread captures no more
    graph.replay()
    assert y.item() == 2
    again, z = captured(runtime, lambda: x + 2)  # and the mode that the other thread could not pop is gone
    again.replay()
    assert z.item() == 3
    assert not _get_current_dispatch_mode_stack()


def test_replay_while_the_stream_captures(runtime):
    """A replay on a capturing stream answers 107026; on another stream it runs, unseen by the capture."""
    x = torch.ones(1)
    first, y = captured(runtime, lambda: x + 1)

    def code():
        assert code_of(first.replay) == 107026
        with runtime.stream(runtime.new_stream()):
            first.replay()
        assert y.tolist() == [2]
        return x * 5

    second, _ = captured(runtime, code)
    assert second.task_count == 1


@pytest.mark.parametrize("whole_device", [False, True])
def test_synchronizing_invalidates_a_capture(runtime, whole_device):
    """Synchronize during a capture is illegal, and the end of that capture answers 507903."""
    stream = runtime.capture_stream()

    def code():
        return code_of(lambda: runtime.synchronize(None if whole_device else stream))

    graph = runtime.new_graph()
    with runtime.stream(stream):
        graph.capture_begin(capture_error_mode="relaxed")
        assert code() == (107028 if whole_device else 107027)
        assert code_of(graph.capture_end) == 507903
    assert code_of(graph.replay) == 107017
    again, _ = captured(runtime, lambda: torch.ones(1) + 1)
    assert again.task_count == 2


def test_other_streams_may_be_synchronized_during_a_capture(runtime):
    """Waiting for a stream that is not captured is legal."""
    graph, _ = captured(runtime, lambda: runtime.synchronize(runtime.new_stream()))
    assert graph.task_count == 0


def test_a_refused_operator_spoils_the_capture(runtime):
    """An operator that needs the host is refused by name; the capture is lost, the stream is not."""
    x = torch.ones(2)
    graph = runtime.new_graph("decoder")
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        with pytest.raises(NotCapturable, match=r"_local_scalar_dense.*synchronize with the host"):
            x.sum().item()
        with pytest.raises(DeviceError, match=r"507903.*_local_scalar_dense"):
            graph.capture_end()
    again, y = captured(runtime, lambda: x + 1)
    again.replay()
    assert y.tolist() == [2, 2]


def test_an_operator_s_own_error_is_the_eager_one(runtime):
    """Arguments that do not fit raise at capture what they raise eagerly, and the capture survives."""
    x = torch.ones(2)

    def code():
        with pytest.raises(RuntimeError, match="must match the size"):
            x + torch.ones(3)
        return x + 1

    graph, y = captured(runtime, code)
    graph.replay()
    assert y.tolist() == [2, 2]


def test_an_operator_that_fails_in_a_replay_is_named(runtime):
    """A value out of range is a device error that names operator and graph; the device lives on."""
    table, index = torch.arange(3.0), torch.tensor([1])
    graph, y = captured(runtime, lambda: table[index], "decoder")
    index.fill_(7)
    with pytest.raises(DeviceError, match=r"graph 'decoder'.*507015.*aten::index.*out of bounds"):
        graph.replay()
    index.fill_(2)
    graph.replay()
    assert y.tolist() == [2]


def test_a_graph_captures_once(runtime):
    """A second capture into the same graph is refused, after a reset too."""
    graph, _ = captured(runtime, lambda: torch.ones(1))
    with runtime.stream(runtime.capture_stream()):
        assert code_of(graph.capture_begin) == 107027
        graph.reset()
        assert code_of(graph.capture_begin) == 107027


def test_an_empty_graph_cannot_be_replayed(runtime):
    """Replay of a graph without a capture, or after its reset, answers 107017."""
    assert code_of(runtime.new_graph().replay) == 107017
    graph, _ = captured(runtime, lambda: torch.ones(1))
    graph.reset()
    graph.reset()
    assert code_of(graph.replay) == 107017


def test_reset_while_running(runtime):
    """Destroying a graph whose replay hangs answers 107037; afterwards it can be destroyed."""
    event = runtime.new_event("attn")
    graph, _ = captured(runtime, lambda: event.wait(runtime.capture_stream()))
    graph.replay()
    assert code_of(graph.reset) == 107037
    event.record(runtime.update_stream())
    graph.reset()


def test_reset_while_capturing(runtime):
    """Destroying a graph in the middle of its capture answers 107027."""
    graph = runtime.new_graph()
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        assert code_of(graph.reset) == 107027
        graph.capture_end()


def test_bad_options_are_refused_before_anything_happens(runtime):
    """An unknown mode or a strange pool raise at once."""
    with runtime.stream(runtime.capture_stream()):
        with pytest.raises(ValueError, match="capture_error_mode"):
            runtime.new_graph().capture_begin(capture_error_mode="strict")
        with pytest.raises(TypeError, match="pool"):
            runtime.new_graph().capture_begin(pool=(0, 1))
        assert not runtime.is_capturing()


def test_streams_run_out():
    """Every graph takes a stream until it is reset or dies; none left answers 207008 and nothing is captured."""
    runtime = SimulatedRuntime(limits=Limits(streams=2))
    graph, _ = captured(runtime, lambda: torch.ones(1))
    with pytest.raises(ResourceExhausted, match=r"207008.*2 streams, 2 are in use"):
        runtime.new_stream()
    with runtime.stream(runtime.capture_stream()):
        with pytest.raises(ResourceExhausted):
            runtime.new_graph().capture_begin()
        assert not runtime.is_capturing()
    graph.reset()
    other, _ = captured(runtime, lambda: torch.ones(1))
    del other, _
    gc.collect()
    captured(runtime, lambda: torch.ones(1))


def test_events_run_out_and_come_back():
    """Events are counted until they die; none left answers 207007."""
    runtime = SimulatedRuntime(limits=Limits(events=1))
    event = runtime.new_event()
    with pytest.raises(ResourceExhausted) as caught:
        runtime.new_event()
    assert caught.value.code == 207007
    del event
    gc.collect()
    assert runtime.simulated_device.events.in_use == 0
    runtime.new_event()


def test_runtimes_on_one_device_share_limits_and_capture_lock():
    """Two owners make two runtimes: one device, two update streams."""
    device = SimulatedDevice(3, limits=Limits(streams=2))
    one, two = SimulatedRuntime(device), SimulatedRuntime(device)
    assert one.name == two.name == "simulated:3"
    assert one.capture_lock is two.capture_lock
    assert one.update_lock is not two.update_lock
    assert one.update_stream().stream_id != two.update_stream().stream_id
    assert one.update_stream() is one.update_stream()
    with pytest.raises(ResourceExhausted):
        two.new_stream()


def test_a_stream_of_another_device_is_refused(runtime):
    """Devices do not share streams: 107003."""
    other = SimulatedRuntime(SimulatedDevice(1)).new_stream()
    assert code_of(lambda: runtime.synchronize(other)) == 107003
    assert code_of(lambda: runtime.stream(other).__enter__()) == 107003


def test_the_current_stream_belongs_to_the_thread(runtime):
    """A fresh thread is on the default stream, and entering a stream is undone on exceptions."""
    stream, seen = runtime.new_stream(), []

    def work():
        with runtime.stream(stream):
            assert in_thread(lambda: seen.append(runtime.current_stream().stream_id)) == []
            raise KeyError

    with pytest.raises(KeyError):
        work()
    assert seen == [0]
    assert runtime.current_stream().stream_id == 0
    with runtime.device():
        assert runtime.current_stream().stream_id == 0


def test_other_streams_run_at_once_during_a_capture(runtime):
    """What is launched on a stream outside the capture is not captured."""
    x = torch.ones(1)

    def code():
        with runtime.stream(runtime.new_stream()):
            return x + 1

    graph, y = captured(runtime, code)
    assert y.item() == 2
    assert graph.task_count == 0


def test_modes_above_the_recorder_survive_its_end(runtime):
    """Ending a capture takes out the device's own mode, wherever it stands in the stack."""

    class Spy(TorchDispatchMode):
        seen = 0

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen += 1
            return func(*args, **(kwargs or {}))

    graph, spy = runtime.new_graph(), Spy()
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin()
        with spy:
            torch.ones(1)
            graph.capture_end()
            assert _get_current_dispatch_mode_stack() == [spy]
            torch.ones(1)
    assert spy.seen == 2
    assert graph.task_count == 1


def test_another_thread_on_the_stream_is_captured_too(runtime):
    """What any thread launches on a capturing stream belongs to the capture, until the thread leaves the stream."""
    x, stream, made = torch.ones(2), runtime.capture_stream(), []

    def launch():
        with runtime.stream(stream):
            made.append(x + 1)
            with runtime.stream(stream):
                made.append(made[0] * 3)
        made.append(x + 2)
        assert _get_current_dispatch_mode_stack() == []

    graph, _ = captured(runtime, lambda: in_thread(launch))
    assert graph.task_count == 2
    assert made[2].tolist() == [3, 3]
    graph.replay()
    assert [m.tolist() for m in made] == [[2, 2], [6, 6], [3, 3]]


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("tolist", lambda y: y.tolist()),
        ("numpy", lambda y: y.detach().view(2, 1).numpy()),
        ("__array__", np.asarray),
    ],
    ids=["tolist", "numpy", "asarray"],
)
def test_reading_what_the_capture_computes_is_refused(runtime, name, read):
    """What reaches no operator is refused as well; constants and tensors from outside can be read."""
    x = torch.ones(2)

    def code():
        assert np.asarray(read(x)).sum() == np.asarray(read(torch.tensor([2, 0]))).sum() == 2
        with pytest.raises(NotCapturable, match=rf"Tensor.{name} cannot be captured: it would synchronize"):
            read(x * 2)

    with pytest.raises(DeviceError, match=rf"507903.*Tensor.{name}"):
        captured(runtime, code)
    assert (x * 2).tolist() == [2, 2]
    assert _get_current_function_mode_stack() == []


def test_the_end_of_a_capture_keeps_other_function_modes(runtime):
    """A mode that was entered inside the capture stays; one whose capture another thread ended goes at the next."""
    graph, x = runtime.new_graph(), torch.ones(1)
    with runtime.stream(runtime.capture_stream()):
        graph.capture_begin(capture_error_mode="relaxed")
        y = x + 1
        with torch.device("cpu") as device:
            graph.capture_end()
            kept = _get_current_function_mode_stack()
            assert [type(mode).__name__ for mode in kept] == ["DeviceContext"], device
    graph.replay()
    assert y.tolist() == [2]

    def end():
        with runtime.stream(runtime.capture_stream()):
            other.capture_end()

    other = runtime.new_graph()
    with runtime.stream(runtime.capture_stream()):
        other.capture_begin(capture_error_mode="relaxed")
        z = x + 2
        assert in_thread(end) == []
    assert z.isnan().tolist() == [True]
    captured(runtime, lambda: x + 3)
    assert _get_current_function_mode_stack() == []
