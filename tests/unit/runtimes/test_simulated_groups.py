"""The simulated device keeps CANN's rules of task groups and updates."""

from __future__ import annotations

import threading

import pytest
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from npugraph_strategies.errors import DeviceError
from npugraph_strategies.runtimes._simulated import SimulatedRuntime, StreamEvent


class Story:
    """One graph: ``y = x + lens * one``, in a task group behind an event, then ``z = y * 2``."""

    def __init__(self, *, functional=False):
        self.runtime = SimulatedRuntime()
        self.stream, self.update_stream = self.runtime.capture_stream(), self.runtime.update_stream()
        self.event = self.runtime.new_event("attn#0")
        self.x, self.one = torch.zeros(2), torch.ones(2)
        self.graph = self.runtime.new_graph("decoder")
        with self.runtime.stream(self.stream):
            self.graph.capture_begin()
            self.y = torch.empty(2)
            self.event.wait(self.stream)
            self.runtime.task_group_begin(self.stream)
            if functional:
                self.y = torch.add(self.x, self.one, alpha=3)
            else:
                torch.add(self.x, self.one, alpha=3, out=self.y)
            self.handle = self.runtime.task_group_end(self.stream)
            self.z = self.y * 2
            self.graph.capture_end()
        self.views = [self.runtime.weak_view(t) for t in (self.x, self.one, self.y)]

    def update(self, alpha, *, functional=False, one=None):
        x, weak_one, y = self.views
        with self.runtime.stream(self.update_stream):
            self.runtime.task_update_begin(self.update_stream, self.handle)
            if functional:
                torch.add(x, weak_one, alpha=alpha)
            else:
                torch.add(x, weak_one if one is None else one, alpha=alpha, out=y)
            self.runtime.task_update_end(self.update_stream)
        self.event.record(self.update_stream)


@pytest.fixture
def story():
    return Story()


def code_of(action):
    with pytest.raises(DeviceError) as caught:
        action()
    return caught.value.code


def test_an_update_changes_the_next_replay(story):
    """The group's operator runs with its new arguments, and so does what depends on it."""
    for alpha in (5, 7):
        story.update(alpha)
        story.graph.replay()
        assert story.z.tolist() == [2 * alpha] * 2


def test_an_update_reaches_a_replay_that_waits(story):
    """A patch after the launch affects the running replay: its operator has not run yet."""
    story.graph.replay()
    story.update(9)
    assert story.z.tolist() == [18, 18]


def test_an_event_alone_repeats_the_last_arguments(story):
    """Zero launches between begin and end are accepted and change nothing."""
    story.update(5)
    story.graph.replay()
    with story.runtime.stream(story.update_stream):
        story.runtime.task_update_begin(story.update_stream, story.handle)
        story.runtime.task_update_end(story.update_stream)
    story.event.record(story.update_stream)
    story.z.zero_()
    story.graph.replay()
    assert story.z.tolist() == [10, 10]


def test_a_functional_operator_loses_its_captured_output():
    """An update of an operator that returns fresh tensors computes elsewhere: the captured output is garbage."""
    story = Story(functional=True)
    story.event.record(story.update_stream)
    story.graph.replay()
    assert story.y.tolist() == [3, 3]
    assert story.z.tolist() == [6, 6]
    story.update(4, functional=True)
    for _ in range(2):
        story.graph.replay()
        assert story.y.isnan().all()
        assert story.z.isnan().all()
        story.event.record(story.update_stream)


def test_a_rebound_tensor_lives_as_long_as_it_is_used(story):
    """A new tensor given to an update is kept until the next update replaces it."""
    story.update(1, one=torch.full((2,), 20.0))
    story.graph.replay()
    assert story.z.tolist() == [40, 40]


def test_launching_while_updating_does_not_run(story):
    """What is launched on the updating stream is stored; what is launched elsewhere runs."""
    with story.runtime.stream(story.update_stream):
        story.runtime.task_update_begin(story.update_stream, story.handle)
        assert torch.add(story.views[0], story.views[1], alpha=8, out=story.views[2]) is story.views[2]
        assert str(story.y.tolist()) == "[nan, nan]"
        with story.runtime.stream(story.runtime.new_stream()):
            assert (story.one + 1).tolist() == [2, 2]
        assert story.one.view(2, 1)[0].item() == 1  # a view is no launch
        story.runtime.task_update_end(story.update_stream)
    story.event.record(story.update_stream)
    story.graph.replay()
    assert story.y.tolist() == [8, 8]


@pytest.mark.parametrize("launches", ["other", "twice", "overload"])
def test_operators_that_do_not_fit_are_refused_at_the_end(story, launches):
    """Another operator, another overload or another number answers 107040; nothing is patched, all is free again."""
    with story.runtime.stream(story.update_stream):
        story.runtime.task_update_begin(story.update_stream, story.handle)
        if launches == "other":
            torch.mul(*story.views[:2], out=story.views[2])
        elif launches == "overload":
            torch.add(*story.views[:2], alpha=5)
        else:
            torch.add(*story.views[:2], out=story.views[2])
            torch.add(*story.views[:2], out=story.views[2])
        assert code_of(lambda: story.runtime.task_update_end(story.update_stream)) == 107040
    story.event.record(story.update_stream)
    story.graph.replay()
    assert story.y.tolist() == [3, 3]
    story.update(6)
    story.graph.replay()
    assert story.y.tolist() == [6, 6]


def test_an_exception_leaves_stream_and_handle_updating(story):
    """Without an end every later update on that stream, or of that handle, answers 107033; an end heals it."""
    runtime, stream = story.runtime, story.update_stream

    def fail():
        with runtime.stream(stream):
            runtime.task_update_begin(stream, story.handle)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert code_of(lambda: runtime.task_update_begin(stream, story.handle)) == 107033
    assert code_of(lambda: runtime.task_update_begin(runtime.new_stream(), story.handle)) == 107033
    with runtime.stream(stream):
        assert code_of(runtime.new_graph().capture_begin) == 107033
    runtime.task_update_end(stream)
    story.update(2)
    story.graph.replay()
    assert story.y.tolist() == [2, 2]


def test_update_end_without_begin(story):
    """Ending an update that never began answers 107033."""
    assert code_of(lambda: story.runtime.task_update_end(story.update_stream)) == 107033


def test_update_on_a_capturing_stream(story):
    """A capturing stream cannot update: 107033."""
    graph = story.runtime.new_graph()
    with story.runtime.stream(story.stream):
        graph.capture_begin()
        assert code_of(lambda: story.runtime.task_update_begin(story.stream, story.handle)) == 107033
        graph.capture_end()


def test_update_on_another_stream_during_a_capture(story):
    """An update may happen while another stream captures: neither sees the other's operators."""
    graph = story.runtime.new_graph()
    with story.runtime.stream(story.stream):
        graph.capture_begin()
        torch.ones(1)
        story.update(5)
        torch.ones(1)
        graph.capture_end()
    story.graph.replay()
    assert graph.task_count == 2
    assert story.y.tolist() == [5, 5]


def test_a_strange_or_spent_handle(story):
    """What is no handle answers 107000, the handle of a destroyed graph 107017."""
    assert code_of(lambda: story.runtime.task_update_begin(story.update_stream, None)) == 107000
    story.graph.reset()
    assert code_of(lambda: story.runtime.task_update_begin(story.update_stream, story.handle)) == 107017


def test_an_update_may_end_in_another_thread(story):
    """The state belongs to the stream; the thread that began stops intercepting."""
    runtime, stream = story.runtime, story.update_stream
    with runtime.stream(stream):
        runtime.task_update_begin(stream, story.handle)
        torch.add(*story.views[:2], alpha=6, out=story.views[2])
        thread = threading.Thread(target=runtime.task_update_end, args=(stream,))
        thread.start()
        thread.join()
        assert (story.one + 1).tolist() == [2, 2]
    story.update(7)
    story.graph.replay()
    assert story.y.tolist() == [7, 7]
    assert not _get_current_dispatch_mode_stack()


@pytest.fixture
def capturing():
    """Return a runtime in the middle of a capture."""
    runtime = SimulatedRuntime()
    graph, stream = runtime.new_graph(), runtime.capture_stream()
    with runtime.stream(stream):
        graph.capture_begin()
        yield runtime, stream, graph
        if runtime.is_capturing():
            graph.capture_end()


def test_a_group_needs_a_capture():
    """Group begin outside a capture answers 107029, group end 107033."""
    runtime = SimulatedRuntime()
    assert code_of(lambda: runtime.task_group_begin(runtime.new_stream())) == 107029
    assert code_of(lambda: runtime.task_group_end(runtime.new_stream())) == 107033


def test_groups_do_not_nest(capturing):
    """A second begin answers 107033, and so does an end too many."""
    runtime, stream, _ = capturing
    runtime.task_group_begin(stream)
    assert code_of(lambda: runtime.task_group_begin(stream)) == 107033
    runtime.task_group_end(stream)
    assert code_of(lambda: runtime.task_group_end(stream)) == 107033


def test_a_group_takes_operators_only(capturing):
    """An event in a group answers 507009; the group gives no handle and the capture is lost."""
    runtime, stream, graph = capturing
    runtime.task_group_begin(stream)
    assert code_of(lambda: runtime.new_event().wait(stream)) == 507009
    assert code_of(lambda: runtime.task_group_end(stream)) == 507903
    assert code_of(graph.capture_end) == 507903


def test_a_launch_on_another_captured_stream_interrupts_the_group(capturing):
    """While a group is open, a launch on another stream of the capture answers 107034."""
    runtime, stream, graph = capturing
    side, fork = runtime.new_stream(), StreamEvent(runtime.simulated_device)
    fork.record(stream)
    fork.wait(side)
    runtime.task_group_begin(stream)
    with runtime.stream(side):
        assert code_of(lambda: torch.ones(1)) == 107034
        assert code_of(lambda: runtime.task_group_end(side)) == 107033
    assert code_of(graph.capture_end) == 507903


def test_an_open_group_spoils_the_end_of_the_capture(capturing):
    """Ending a capture with an open group answers 107033, and the stream is free again."""
    runtime, stream, graph = capturing
    runtime.task_group_begin(stream)
    assert code_of(graph.capture_end) == 107033
    assert not runtime.is_capturing()
    assert code_of(graph.replay) == 107017


def test_a_group_may_hold_several_operators():
    """The operators of a group are replaced in order."""
    runtime = SimulatedRuntime()
    stream, x, graph = runtime.capture_stream(), torch.ones(1), runtime.new_graph()
    with runtime.stream(stream):
        graph.capture_begin()
        y, z = torch.empty(1), torch.empty(1)
        runtime.task_group_begin(stream)
        torch.mul(x, 2, out=y)
        torch.add(x, 2, out=z)
        handle = runtime.task_group_end(stream)
        graph.capture_end()
    with runtime.stream(runtime.update_stream()):
        runtime.task_update_begin(runtime.update_stream(), handle)
        torch.mul(x, 5, out=y)
        torch.add(x, 6, out=z)
        runtime.task_update_end(runtime.update_stream())
    graph.replay()
    assert (y.item(), z.item()) == (5, 7)
    assert repr(handle) == "<TaskGroup of aten::mul.out, aten::add.out>"


def test_a_replacement_of_another_shape_fails_where_it_runs():
    """A result that does not fit the captured output is a device error that gives both shapes."""
    story = Story(functional=True)
    story.views[0] = torch.zeros(3, 2)
    story.update(1, functional=True)
    with pytest.raises(DeviceError, match=r"is torch.float32 \(3, 2\), captured was torch.float32 \(2,\)"):
        story.graph.replay()


@pytest.mark.parametrize("size", [0, 100_000])
@pytest.mark.parametrize("when", ["before", "after"])
def test_an_update_does_not_follow_memory_that_moved(story, size, when):
    """The weak view of an output that was resized leads nowhere: the replay says so instead of writing there."""
    if when == "after":
        story.update(5)
    story.y.untyped_storage().resize_(size)
    if when == "before":
        story.update(5)
    with pytest.raises(DeviceError, match=r"507015: argument 'out' of aten::add.out was (resized|moved)"):
        story.graph.replay()


@pytest.mark.parametrize("size", [0, 100_000])
def test_an_argument_of_an_update_that_moved_is_reported(story, size):
    """What an update was given is used by address too, whoever owns it."""
    one = torch.ones(2)
    story.update(5, one=one)
    one.untyped_storage().resize_(size)
    with pytest.raises(DeviceError, match=r"argument 'other' of aten::add.out was (resized|moved)"):
        story.graph.replay()
