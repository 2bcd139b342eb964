"""Limits, and the ends of streams, events, graphs and memory."""

from __future__ import annotations

import pytest

from simulator.driver import TO_DEVICE, refused


def test_streams_run_out(driver):
    """207008, until one is destroyed."""
    driver.control.limits(streams=3, events=3)
    streams = [driver.stream() for _ in range(3)]
    with refused(207008):
        driver.stream()
    driver.destroy_stream(streams[0])
    driver.stream()
    assert driver.control.count("streams") == 3


def test_a_graph_takes_a_stream_for_each_captured_one(driver):
    """They come back when it is destroyed."""
    origin, side, out, back = driver.stream(), driver.stream(), driver.event(), driver.event()
    with driver.capturing(origin) as made:
        driver.record(out, origin)
        driver.wait(out, side)
        driver.record(back, side)
        driver.wait(back, origin)
    assert driver.control.count("streams") == 4
    driver.destroy_graph(made[0])
    assert driver.control.count("streams") == 2


def test_graphs_run_out_of_streams(driver):
    """The end of a capture returns 207008 and keeps nothing."""
    driver.control.limits(streams=2, events=3)
    stream = driver.stream()
    with driver.capturing(stream):
        pass
    driver.capture_begin(stream)
    with refused(207008):
        driver.capture_end(stream)
    assert (driver.control.count("streams"), driver.control.count("graphs")) == (2, 1)


def test_events_run_out(driver):
    """207007, of either kind, until one is destroyed."""
    driver.control.limits(streams=3, events=2)
    first = driver.event()
    driver.event(external=True)
    with refused(207007):
        driver.event()
    driver.destroy_event(first)
    driver.event()
    assert driver.control.count("events") == 2


def test_limits_are_of_one_device(driver):
    """Another device has its own."""
    driver.control.limits(streams=1, events=1)
    driver.stream()
    driver.set_device(1)
    driver.stream()
    with refused(207008):
        driver.stream()


@pytest.mark.parametrize("size", [2**36 + 1, 2**63, 2**64 - 1])
def test_memory_runs_out(driver, size):
    """A device has 64 GiB: 207001, and nothing is counted as used. It is no misuse, so nothing is reported."""
    used, reports = driver.control.count("memory"), driver.control.count("reports")
    with refused(207001):
        driver.allocate(size)
    assert driver.control.count("memory") == used
    assert driver.control.count("reports") == reports


def test_memory_in_use_is_counted(driver):
    """In bytes, as they were asked for."""
    before = driver.control.count("memory")
    address = driver.allocate(1000)
    assert driver.control.count("memory") == before + 1000
    driver.free(address)
    assert driver.control.count("memory") == before


def test_a_running_graph_cannot_be_destroyed(driver):
    """107037, until its last replay has ended."""
    stream, flag = driver.stream(), driver.flag()
    with driver.capturing(stream) as made:
        driver.value_wait(flag, 1, stream)
    driver.replay(made[0], stream)
    driver.replay(made[0], stream)
    with refused(107037):
        driver.destroy_graph(made[0])
    driver.value_write(flag, 1)
    driver.synchronize(stream)
    driver.destroy_graph(made[0])


def test_a_graph_is_destroyed_once(driver):
    """Afterwards its handle is dead for everything, also when later graphs live: 107017."""
    stream = driver.stream()
    with driver.capturing(stream) as made:
        pass
    driver.destroy_graph(made[0])
    with driver.capturing(stream):
        pass
    with refused(107017):
        driver.destroy_graph(made[0])
    with refused(107017):
        driver.replay(made[0], stream)


def test_a_graph_outlives_its_capture_stream(driver):
    """The stream it was captured on may be destroyed."""
    stream, other, x = driver.stream(), driver.stream(), driver.number()
    with driver.capturing(stream) as made, driver.group(stream) as groups:
        driver.add(x, 1, stream)
    driver.destroy_stream(stream)
    with driver.updating(other, groups[0]):
        driver.add(x, 10, other)
    driver.replay(made[0], other)
    driver.synchronize(other)
    assert driver.read(x) == 10


def test_a_capturing_stream_cannot_be_destroyed(driver):
    """107027, and the capture goes on."""
    stream = driver.stream()
    driver.capture_begin(stream)
    for force in (False, True):
        with refused(107027):
            driver.destroy_stream(stream, force=force)
    driver.capture_end(stream)


def test_destroying_a_stream_waits_for_its_work(driver):
    """What is queued is done first."""
    stream, x = driver.stream(), driver.number()
    driver.control.seed(0)
    for _ in range(20):
        driver.add(x, 1, stream)
    driver.destroy_stream(stream)
    assert driver.read(x) == 20


def test_destroying_a_stream_that_hangs(driver):
    """507046, and the stream is still there."""
    stream, event = driver.stream(), driver.event()
    driver.wait(event, stream)
    with refused(507046):
        driver.destroy_stream(stream)
    driver.record(event)
    driver.destroy_stream(stream)


def test_destroying_a_stream_by_force(driver):
    """What is queued and hangs is dropped; other streams are not disturbed."""
    stream, x = driver.stream(), driver.number()
    driver.wait(driver.event(), stream)
    driver.add(x, 1, stream)
    driver.destroy_stream(stream, force=True)
    driver.add(x, 10)
    driver.synchronize_device()
    assert driver.read(x) == 10
    with refused(107017):
        driver.synchronize(stream)


def test_a_replay_that_is_dropped_by_force(driver):
    """Its graph can be launched again and destroyed."""
    stream, other, flag, x = driver.stream(), driver.stream(), driver.flag(), driver.number()
    with driver.capturing(other) as made:
        driver.value_wait(flag, 1, other)
        driver.add(x, 1, other)
    driver.replay(made[0], stream)
    driver.replay(made[0], stream)
    assert not driver.done(stream)
    driver.destroy_stream(stream, force=True)
    driver.value_write(flag, 1)
    driver.replay(made[0], other)
    driver.synchronize(other)
    assert driver.read(x) == 1
    driver.destroy_graph(made[0])


def test_a_destroyed_handle_is_dead_for_good(driver):
    """A later stream or event never has the handle of an earlier one."""
    stream, event = driver.stream(), driver.event()
    driver.destroy_stream(stream)
    driver.destroy_event(event)
    later = {driver.stream() for _ in range(50)} | {driver.event() for _ in range(50)}
    assert not later & {stream, event}
    with refused(107017):
        driver.destroy_stream(stream)
    with refused(107017):
        driver.destroy_event(event)


def test_memory_is_freed_once(driver):
    """107000, with words that say what the address is."""
    address = driver.allocate(64)
    for wrong, words in [(address + 8, "begins 8 bytes into a block of 64"), (None, "is null"), (16, "in no block")]:
        with refused(107000, words):
            driver.free(wrong)
    driver.free(address)
    with refused(107000, "was freed"):
        driver.free(address)


def test_pinned_memory_is_freed_once(driver):
    """107000 after that, and for what is no pinned memory."""
    pinned, device = driver.pinned(8), driver.allocate(8)
    driver.free_pinned(pinned)
    for wrong in (pinned, device, None):
        with refused(107000):
            driver.free_pinned(wrong)


def test_memory_of_a_queued_kernel(driver):
    """Freed before the kernel runs: the kernel does not run, and the synchronisation returns 507015."""
    stream, x, gate = driver.stream(), driver.number(), driver.flag()
    driver.value_wait(gate, 1, stream)
    driver.add(x, 1, stream, name="late")
    driver.free(x)
    driver.value_write(gate, 1)
    with refused(507015, "argument 0 of late", "was freed"):
        driver.synchronize(stream)


def test_memory_of_a_graph(driver):
    """Freed while the graph lives: a replay fails, and names the graph and the task."""
    stream, x, y = driver.stream(), driver.number(), driver.number()
    with driver.capturing(stream) as made:
        driver.add(y, 1, stream)
        driver.add(x, 1, stream)
    driver.free(x)
    driver.replay(made[0], stream)
    with refused(507015, "was freed", "task 1 of graph 1"):
        driver.synchronize(stream)
    assert driver.read(y) == 1


def test_freed_memory_on_a_lenient_device(driver):
    """Without strictness a kernel over memory that was freed runs, and nothing is told."""
    driver.control.strict(False)
    stream, x, y, gate = driver.stream(), driver.number(), driver.number(), driver.flag()
    driver.value_wait(gate, 1, stream)
    driver.add(x, 1, stream)
    driver.add(y, 1, stream)
    driver.free(x)
    driver.value_write(gate, 1)
    driver.synchronize(stream)
    assert driver.read(y) == 1


def test_pinned_memory_of_a_queued_copy(driver):
    """Freed before the copy: the same failure, and nothing is read."""
    stream, x, gate, pinned = driver.stream(), driver.number(5.0), driver.flag(), driver.pinned(8)
    driver.value_wait(gate, 1, stream)
    driver.copy_async(x, pinned, 8, TO_DEVICE, stream)
    driver.free_pinned(pinned)
    driver.value_write(gate, 1)
    with refused(507015, "was freed"):
        driver.synchronize(stream)
    assert driver.read(x) == 5


def test_memory_that_a_value_wait_watches(driver):
    """Freed meanwhile: the wait fails instead of hanging."""
    stream, address = driver.stream(), driver.flag()
    driver.value_wait(address, 1, stream)
    assert not driver.done(stream)
    driver.free(address)
    with refused(507015, "was freed"):
        driver.synchronize(stream)
