"""Captures: what they store, how they join and end, and what they refuse."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from simulator.driver import MODES, elsewhere, refused


def test_captured_work_is_stored_and_not_run(driver):
    """A captured kernel runs at each replay, and not before."""
    stream, x = driver.stream(), driver.number(1.0)
    with driver.capturing(stream) as made:
        driver.add(x, 2, stream)
    driver.synchronize_device()
    assert driver.read(x) == 1
    for expected in (3, 5):
        driver.replay(made[0], stream)
        driver.synchronize(stream)
        assert driver.read(x) == expected


def test_an_empty_capture_replays(driver):
    """A graph without tasks ends as soon as it begins."""
    stream = driver.stream()
    with driver.capturing(stream) as made:
        pass
    driver.replay(made[0], stream)
    driver.synchronize(stream)


def test_copies_fills_and_host_functions_are_captured(driver):
    """Everything asynchronous is part of the graph, in its order."""
    stream, x, y, called = driver.stream(), driver.number(1.0), driver.number(), []
    with driver.capturing(stream) as made:
        driver.copy_async(y, x, 8, 3, stream)
        driver.add(y, 4, stream)
        driver.host_function(lambda: called.append(1), stream)
        driver.fill_async(x, 0, 8, stream)
    for _ in range(2):
        driver.replay(made[0], stream)
    driver.synchronize(stream)
    assert (driver.read(x), driver.read(y), called) == (0, 4, [1, 1])


def test_the_default_stream_cannot_capture(driver):
    """Neither by the null handle nor by joining: 107031."""
    with refused(107031):
        driver.capture_begin(None)
    stream, event = driver.stream(), driver.event()
    driver.capture_begin(stream)
    driver.record(event, stream)
    with refused(107031):
        driver.wait(event, None)


def test_begin_on_a_capturing_stream(driver):
    """It is refused with 107027, and the capture goes on."""
    stream = driver.stream()
    driver.capture_begin(stream)
    with refused(107027):
        driver.capture_begin(stream)
    driver.capture_end(stream)


def test_end_without_begin(driver):
    """107029."""
    with refused(107029):
        driver.capture_end(driver.stream())


def test_end_on_a_joined_stream(driver):
    """107036; the origin can still end it."""
    origin, side, event, back = driver.stream(), driver.stream(), driver.event(), driver.event()
    driver.capture_begin(origin)
    driver.record(event, origin)
    driver.wait(event, side)
    with refused(107036):
        driver.capture_end(side)
    driver.record(back, side)
    driver.wait(back, origin)
    driver.capture_end(origin)


@pytest.mark.parametrize("mode", ["global", "thread_local"])
def test_end_from_another_thread(driver, mode):
    """107038, and the thread that began it can still end it."""
    stream = driver.stream()
    driver.capture_begin(stream, mode)
    with refused(107038):
        elsewhere(driver.capture_end, stream)
    driver.capture_end(stream)


def test_a_relaxed_capture_ends_in_any_thread(driver):
    """A relaxed capture is no thread's own."""
    stream = driver.stream()
    driver.capture_begin(stream, "relaxed")
    assert elsewhere(driver.capture_end, stream)


def test_a_replay_inside_a_capture(driver):
    """107026, and the capture goes on without it."""
    stream, other = driver.stream(), driver.stream()
    with driver.capturing(stream) as made:
        pass
    driver.capture_begin(other)
    with refused(107026):
        driver.replay(made[0], other)
    assert driver.capture_end(other)


def test_a_replay_beside_a_capture(driver):
    """A graph may be launched on another stream meanwhile."""
    stream, other, x = driver.stream(), driver.stream(), driver.number()
    with driver.capturing(stream) as made:
        driver.add(x, 1, stream)
    with driver.capturing(other):
        driver.replay(made[0], stream)
        driver.synchronize(stream)
    assert driver.read(x) == 1


def test_launches_into_a_broken_capture(driver):
    """507903, until it is ended; afterwards the stream is an ordinary one."""
    stream, x = driver.stream(), driver.number()
    driver.capture_begin(stream)
    with refused(107027):
        driver.synchronize(stream)
    with refused(507903):
        driver.add(x, 1, stream)
    with refused(507903):
        driver.capture_end(stream)
    driver.add(x, 1, stream)
    driver.synchronize(stream)
    assert driver.read(x) == 1


def test_the_status_of_a_capture(driver):
    """None, active, invalidated; and none again after the end."""
    stream = driver.stream()
    seen = [driver.capture_status(stream)]
    driver.capture_begin(stream)
    seen.append(driver.capture_status(stream))
    with refused(107027):
        driver.done(stream)
    seen.append(driver.capture_status(stream))
    with refused(507903):
        driver.capture_end(stream)
    seen.append(driver.capture_status(stream))
    assert seen == ["none", "active", "invalidated", "none"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("code", "call"),
    [
        (107027, lambda at: at.driver.synchronize(at.stream)),
        (107027, lambda at: at.driver.done(at.stream)),
        (107028, lambda at: at.driver.synchronize_event(at.event)),
        (107028, lambda at: at.driver.completed(at.event)),
        (107028, lambda at: at.driver.synchronize_device()),
    ],
    ids=["synchronize stream", "query stream", "synchronize event", "query event", "synchronize device"],
)
def test_synchronising_breaks_a_capture(driver, mode, code, call):
    """Synchronising with, or querying, what is captured is illegal in every mode; the end then returns 507903."""
    stream, event = driver.stream(), driver.event()
    driver.capture_begin(stream, mode)
    driver.record(event, stream)
    with refused(code):
        call(SimpleNamespace(driver=driver, stream=stream, event=event))
    with refused(507903):
        driver.capture_end(stream)


def test_other_streams_and_events_can_be_synchronised_with(driver):
    """What has nothing to do with the capture is not barred."""
    stream, other, event, x = driver.stream(), driver.stream(), driver.event(), driver.number()
    with driver.capturing(stream):
        driver.add(x, 1, other)
        driver.record(event, other)
        driver.synchronize_event(event)
        driver.synchronize(other)
        assert driver.completed(event)
        assert driver.done(other)
    assert driver.read(x) == 1


def test_another_device_can_be_synchronised_with(driver):
    """A capture bars its own device only."""
    stream = driver.stream()
    with driver.capturing(stream):
        driver.set_device(1)
        driver.synchronize_device()
        driver.set_device(0)


def test_a_joined_stream_is_captured_too(driver):
    """Work of a stream that waits for a captured event is part of the graph, ordered by the events."""
    origin, side, out, back, x = (
        *(driver.stream() for _ in range(2)),
        driver.event(),
        driver.event(),
        driver.number(1.0),
    )
    y = driver.number()
    with driver.capturing(origin) as made:
        driver.add(x, 1, origin)
        driver.record(out, origin)
        driver.wait(out, side)
        driver.copy_async(y, x, 8, 3, side)
        driver.record(back, side)
        driver.wait(back, origin)
        driver.add(x, 10, origin)
    driver.synchronize_device()
    assert driver.read(x) == 1
    driver.replay(made[0], origin)
    driver.synchronize(origin)
    assert (driver.read(x), driver.read(y)) == (12, 2)


def test_a_joined_stream_is_free_after_the_end(driver):
    """Its later work is not captured."""
    origin, side, out, back, x = *(driver.stream() for _ in range(2)), driver.event(), driver.event(), driver.number()
    with driver.capturing(origin):
        driver.record(out, origin)
        driver.wait(out, side)
        driver.record(back, side)
        driver.wait(back, origin)
    driver.add(x, 1, side)
    driver.synchronize(side)
    assert driver.read(x) == 1


def test_a_stream_that_is_not_joined_back(driver):
    """107025 names it, and both streams are free afterwards."""
    origin, side, event = driver.stream(), driver.stream(), driver.event()
    driver.capture_begin(origin)
    driver.record(event, origin)
    driver.wait(event, side)
    with refused(107025, f"stream {driver.stream_id(side)} "):
        driver.capture_end(origin)
    assert driver.capture_status(side) == "none"
    driver.synchronize(side)


def test_work_after_the_join_back(driver):
    """What the other stream does after the event that the origin waits for is not joined: 107025."""
    origin, side, out, back, x = *(driver.stream() for _ in range(2)), driver.event(), driver.event(), driver.number()
    driver.capture_begin(origin)
    driver.record(out, origin)
    driver.wait(out, side)
    driver.record(back, side)
    driver.wait(back, origin)
    driver.add(x, 1, side)
    with refused(107025):
        driver.capture_end(origin)


def test_joining_back_through_a_third_stream(driver):
    """Joins are transitive."""
    streams, events, x = [driver.stream() for _ in range(3)], [driver.event() for _ in range(3)], driver.number()
    with driver.capturing(streams[0]) as made:
        for i, event in enumerate(events):
            driver.add(x, 1, streams[i])
            driver.record(event, streams[i])
            driver.wait(event, streams[(i + 1) % 3])
    driver.replay(made[0], streams[0])
    driver.synchronize(streams[0])
    assert driver.read(x) == 3


@pytest.mark.parametrize("recorded", [False, True], ids=["never recorded", "recorded outside"])
def test_waiting_for_what_was_not_captured(driver, recorded):
    """107024, and the capture is broken."""
    stream, event = driver.stream(), driver.event()
    if recorded:
        driver.record(event)
        driver.synchronize_device()
    driver.capture_begin(stream)
    with refused(107024):
        driver.wait(event, stream)
    with refused(507903, "did not record"):
        driver.capture_end(stream)


def test_waiting_for_another_capture(driver):
    """107032, and the waiting capture alone is broken."""
    first, second, event = driver.stream(), driver.stream(), driver.event()
    driver.capture_begin(first)
    driver.capture_begin(second)
    driver.record(event, first)
    with refused(107032):
        driver.wait(event, second)
    with refused(507903):
        driver.capture_end(second)
    driver.capture_end(first)


def test_waiting_for_a_capture_that_has_ended(driver):
    """Inside a later capture 107032, outside any 107024."""
    stream, event = driver.stream(), driver.event()
    with driver.capturing(stream):
        driver.record(event, stream)
    with refused(107024):
        driver.wait(event, stream)
    driver.capture_begin(stream)
    with refused(107032):
        driver.wait(event, stream)


def test_an_event_can_be_recorded_outside_again(driver):
    """Its last record counts, wherever that was."""
    stream, event = driver.stream(), driver.event()
    with driver.capturing(stream):
        driver.record(event, stream)
    driver.record(event, stream)
    driver.wait(event)
    driver.synchronize()
    assert driver.completed(event)


def test_replays_of_one_graph_do_not_overlap(driver):
    """On two streams they happen one after the other."""
    first, second, x, flag = driver.stream(), driver.stream(), driver.number(), driver.flag()
    with driver.capturing(first) as made:
        driver.add(x, 1, first)
        driver.value_wait(flag, 1, first)
        driver.value_write(flag, 0, first)
    driver.replay(made[0], first)
    driver.replay(made[0], second)
    with refused(507046, "the replay of graph 1 before it"):
        driver.synchronize(second)
    assert driver.read(x) == 1
    driver.value_write(flag, 1)
    driver.synchronize(first)
    driver.value_write(flag, 1)
    driver.synchronize(second)
    assert driver.read(x) == 2
