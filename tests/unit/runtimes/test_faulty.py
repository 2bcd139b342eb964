from __future__ import annotations

import pytest

from npugraph_strategies.errors import DeviceError
from npugraph_strategies.runtimes._faulty import FaultyRuntime, InjectedFault
from npugraph_strategies.runtimes._recording import RecordingRuntime
from npugraph_strategies.runtimes._simulated import SimulatedRuntime
from npugraph_strategies.runtimes._wrapped import PRIMITIVES


def test_without_a_number_it_only_counts(plain, program):
    """A run that never fails tells how many failures there are to try."""
    runtime = FaultyRuntime(plain, fail_at=None)
    program(runtime)
    assert runtime.count == len(PRIMITIVES)
    assert not runtime.failed


@pytest.mark.parametrize("number", range(len(PRIMITIVES)))
def test_each_primitive_can_be_made_to_fail(plain, program, number):
    """The primitive of that number raises, and nothing of it reaches the inner runtime."""
    runtime = FaultyRuntime(plain, fail_at=number)
    with pytest.raises(InjectedFault) as caught:
        program(runtime)
    assert caught.value.index == number
    assert len(plain.asked) == number
    assert runtime.count == number + 1


@pytest.mark.parametrize("number", range(len(PRIMITIVES)))
def test_each_primitive_can_fail_after_it_took_effect(plain, program, number):
    """With after=True the inner call is made, then the fault is raised."""
    runtime = FaultyRuntime(plain, fail_at=number, after=True)
    with pytest.raises(InjectedFault) as caught:
        program(runtime)
    assert plain.asked[-1][0] == caught.value.primitive
    assert len(plain.asked) == number + 1


def test_it_fails_once_and_only_once(plain):
    """Calls before and after the fault pass."""
    runtime = FaultyRuntime(plain, fail_at=1)
    runtime.new_event()
    with pytest.raises(InjectedFault):
        runtime.new_event()
    assert runtime.failed
    for _ in range(5):
        runtime.new_event()
    assert len(plain.asked) == 6


def test_only_named_primitives_are_counted(plain, program):
    """With names, the number counts among those and the others pass."""
    runtime = FaultyRuntime(plain, fail_at=1, names=["task_update_begin", "task_update_end"])
    with pytest.raises(InjectedFault, match="task_update_end"):
        program(runtime)
    assert runtime.count == 2


def test_one_name_may_be_given_alone(plain):
    """A string is one name, not its letters."""
    assert FaultyRuntime(plain, fail_at=0, names="graph.replay").names == {"graph.replay"}


def test_an_unknown_name_is_refused(plain):
    """A name that is no primitive would never fail, so it is an error with a suggestion."""
    with pytest.raises(ValueError, match=r"'event\.recrod' is not a primitive \(did you mean 'event\.record'\?\)"):
        FaultyRuntime(plain, fail_at=0, names=["event.recrod"])
    with pytest.raises(ValueError, match="'xyz' is not a primitive; there are"):
        FaultyRuntime(plain, fail_at=0, names=["xyz"])


def test_a_negative_number_is_refused(plain):
    """Primitives are counted from 0."""
    with pytest.raises(ValueError, match="given -1"):
        FaultyRuntime(plain, fail_at=-1)


def test_the_error_can_be_chosen(plain):
    """The factory gets the primitive's name and number."""
    runtime = FaultyRuntime(plain, fail_at=0, error=lambda name, number: DeviceError(107033, name, f"number {number}"))
    with pytest.raises(DeviceError, match="synchronize failed with error code 107033: number 0"):
        runtime.synchronize()


def test_the_default_fault_is_a_foreign_runtime_error(plain):
    """It looks like a failure of the device, keeps its facts, and can be the cause of another error."""
    runtime = FaultyRuntime(plain, fail_at=0)
    with pytest.raises(RuntimeError, match="injected fault at synchronize") as caught:
        runtime.synchronize()
    assert (caught.value.primitive, caught.value.index) == ("synchronize", 0)
    with pytest.raises(KeyError) as other:
        raise KeyError from caught.value
    assert other.value.__cause__ is caught.value


def test_a_recorder_above_sees_the_fault_and_one_below_does_not(plain):
    """Wrappers stack in either order, and each sees what passes it."""
    below = RecordingRuntime(plain)
    above = RecordingRuntime(FaultyRuntime(below, fail_at=0))
    with pytest.raises(InjectedFault):
        above.synchronize()
    assert above.primitives[0].error == "InjectedFault: injected fault at synchronize (number 0)"
    assert below.names() == ()


@pytest.mark.parametrize("wrapper", [lambda inner: FaultyRuntime(inner, fail_at=None), RecordingRuntime])
def test_a_class_is_no_runtime(wrapper):
    """Forgotten parentheses are found at once."""
    with pytest.raises(TypeError, match=r"wrap a runtime, not the class SimulatedRuntime: SimulatedRuntime\(\)"):
        wrapper(SimulatedRuntime)
