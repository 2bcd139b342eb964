"""Task groups and updates: the table of preconditions."""

from __future__ import annotations

import ctypes
import json
from types import SimpleNamespace

import pytest

from simulator.driver import ON_DEVICE, elsewhere, refused


@pytest.fixture
def stream(driver):
    """Return the stream that is captured."""
    return driver.stream()


@pytest.fixture
def updater(driver):
    """Return the stream that updates."""
    return driver.stream()


@pytest.fixture
def x(driver):
    """Return a number on the device."""
    return driver.number()


@pytest.fixture
def graph_and_group(driver, stream, x):
    """Return a graph with one task group, which adds 1 and then 2, and the group's handle."""
    with driver.capturing(stream) as graphs, driver.group(stream) as groups:
        driver.add(x, 1, stream, name="first")
        driver.add(x, 2, stream, name="second")
    return graphs[0], groups[0]


@pytest.fixture
def group(graph_and_group):
    """Return the handle of a task group of two tasks."""
    return graph_and_group[1]


def replayed(driver, graph, stream, x):
    """Return by how much a replay changes x."""
    before = driver.read(x)
    driver.replay(graph, stream)
    driver.synchronize(stream)
    return driver.read(x) - before


def test_a_group_begins_in_a_capture_only(driver, stream):
    """107029 otherwise."""
    with refused(107029):
        driver.group_begin(stream)


def test_groups_do_not_nest(driver, stream):
    """107033, and the open one goes on."""
    driver.capture_begin(stream)
    driver.group_begin(stream)
    with refused(107033):
        driver.group_begin(stream)
    assert driver.group_end(stream)
    driver.capture_end(stream)


def test_a_group_begin_while_updating(driver, updater, group):
    """107033."""
    driver.update_begin(updater, group)
    with refused(107033):
        driver.group_begin(updater)


def test_a_group_ends_where_it_began(driver, stream, updater):
    """107033 on a stream where none is open."""
    with refused(107033):
        driver.group_end(stream)
    driver.capture_begin(stream)
    with refused(107033):
        driver.group_end(stream)
    driver.group_begin(stream)
    with refused(107033):
        driver.group_end(updater)
    driver.group_end(stream)


@pytest.mark.parametrize(
    "launch",
    [
        lambda at: at.driver.copy_async(at.x, at.x, 8, ON_DEVICE, at.stream),
        lambda at: at.driver.fill_async(at.x, 0, 8, at.stream),
        lambda at: at.driver.record(at.driver.event(), at.stream),
        lambda at: at.driver.record(at.driver.event(external=True), at.stream),
        lambda at: at.driver.wait(at.driver.event(external=True), at.stream),
        lambda at: at.driver.value_wait(at.x, 1, at.stream),
        lambda at: at.driver.value_write(at.x, 1, at.stream),
        lambda at: at.driver.host_function(lambda: None, at.stream),
    ],
    ids=["copy", "fill", "record", "external record", "external wait", "value wait", "value write", "host function"],
)
def test_groups_hold_operators_only(driver, stream, x, launch):
    """Anything else is refused with 507009, gives no handle and breaks the capture."""
    driver.capture_begin(stream)
    driver.group_begin(stream)
    with refused(507009):
        launch(SimpleNamespace(driver=driver, stream=stream, x=x))
    with refused(507903):
        driver.group_end(stream)
    with refused(507903):
        driver.capture_end(stream)


def test_a_launch_on_another_stream_of_the_capture(driver, stream, updater, x):
    """While a group is open it is refused with 107034, and the capture is broken."""
    event = driver.event()
    driver.capture_begin(stream)
    driver.record(event, stream)
    driver.wait(event, updater)
    driver.group_begin(stream)
    with refused(107034):
        driver.add(x, 1, updater)
    with refused(507903):
        driver.group_end(stream)


def test_a_launch_outside_the_capture_does_not_disturb_a_group(driver, stream, updater, x):
    """Only streams of the same capture do."""
    with driver.capturing(stream), driver.group(stream) as groups:
        driver.add(x, 1, updater)
        driver.add(x, 1, stream)
    assert groups[0]


def test_a_group_end_after_the_capture_went_bad(driver, stream, x):
    """There is no handle: 507903."""
    driver.capture_begin(stream)
    driver.group_begin(stream)
    driver.add(x, 1, stream)
    with refused(107027):
        driver.synchronize(stream)
    with refused(507903):
        driver.group_end(stream)


def test_a_capture_that_ends_with_an_open_group(driver, stream):
    """107033, and no graph."""
    driver.capture_begin(stream)
    driver.group_begin(stream)
    with refused(107033):
        driver.capture_end(stream)
    assert driver.control.count("graphs") == 0


def test_an_update_replaces_the_tasks(driver, stream, updater, x, graph_and_group):
    """The next replay runs what was launched between begin and end; that itself does not run."""
    graph, group = graph_and_group
    assert replayed(driver, graph, stream, x) == 3
    with driver.updating(updater, group):
        driver.add(x, 10, updater, name="first")
        driver.add(x, 20, updater, name="second")
    driver.synchronize(updater)
    assert driver.read(x) == 3
    assert replayed(driver, graph, stream, x) == 30


def test_groups_are_updated_on_their_own(driver, stream, updater, x):
    """An update changes the group of its handle alone."""
    with driver.capturing(stream) as graphs:
        with driver.group(stream) as one:
            driver.add(x, 1, stream)
        with driver.group(stream) as two:
            driver.add(x, 2, stream)
    assert one != two
    with driver.updating(updater, two[0]):
        driver.add(x, 20, updater)
    driver.synchronize(updater)
    assert replayed(driver, graphs[0], stream, x) == 21


def test_an_update_on_a_capturing_stream(driver, updater, group):
    """107033, and the capture goes on."""
    driver.capture_begin(updater)
    with refused(107033):
        driver.update_begin(updater, group)
    driver.capture_end(updater)


def test_a_capture_on_an_updating_stream(driver, updater, group):
    """107033."""
    driver.update_begin(updater, group)
    with refused(107033):
        driver.capture_begin(updater)


def test_an_update_of_a_group_that_is_being_captured(driver, stream, updater, x):
    """107033: there is no graph to update before the capture's end."""
    driver.capture_begin(stream)
    with driver.group(stream) as groups:
        driver.add(x, 1, stream)
    with refused(107033):
        driver.update_begin(updater, groups[0])
    driver.capture_end(stream)


def test_an_update_end_without_begin(driver, updater):
    """107033."""
    with refused(107033):
        driver.update_end(updater)


def test_begin_without_end_leaves_stream_and_handle_updating(driver, updater, group):
    """An exception in between is seen by every later update of either, until somebody ends it."""
    driver.update_begin(updater, group)
    for _ in range(2):
        with refused(107033, "updates already"):
            driver.update_begin(updater, group)
        with refused(107033, "being updated already"):
            driver.update_begin(driver.stream(), group)
    driver.update_end(updater)
    driver.update_begin(updater, group)
    driver.update_end(updater)


def test_zero_launches_change_nothing(driver, stream, updater, x, graph_and_group):
    """An update that launches nothing is accepted."""
    graph, group = graph_and_group
    with driver.updating(updater, group):
        pass
    assert replayed(driver, graph, stream, x) == 3


@pytest.mark.parametrize(
    ("names", "words"),
    [
        (["first"], "1 operators launched, and the group has 2"),
        (["first", "second", "third"], "3 operators launched"),
        (["second", "first"], "operator 0 is second, and the group has first"),
    ],
)
def test_an_update_that_does_not_fit(driver, stream, updater, x, graph_and_group, names, words):
    """Number and types must match: 107040 at the end; nothing is patched, and another update works."""
    graph, group = graph_and_group
    driver.update_begin(updater, group)
    for name in names:
        driver.add(x, 10, updater, name=name)
    with refused(107040, words):
        driver.update_end(updater)
    assert replayed(driver, graph, stream, x) == 3
    with driver.updating(updater, group):
        driver.add(x, 10, updater, name="first")
        driver.add(x, 20, updater, name="second")
    driver.synchronize(updater)
    assert replayed(driver, graph, stream, x) == 30


@pytest.mark.parametrize(
    "launch",
    [
        lambda at: at.driver.copy_async(at.x, at.x, 8, ON_DEVICE, at.stream),
        lambda at: at.driver.record(at.driver.event(), at.stream),
        lambda at: at.driver.wait(at.driver.event(), at.stream),
        lambda at: at.driver.value_write(at.x, 1, at.stream),
        lambda at: at.driver.host_function(lambda: None, at.stream),
    ],
    ids=["copy", "record", "wait", "value write", "host function"],
)
def test_updates_hold_operators_only(driver, updater, x, group, launch):
    """507009, and the update goes on."""
    driver.update_begin(updater, group)
    with refused(507009):
        launch(SimpleNamespace(driver=driver, stream=updater, x=x))
    driver.update_end(updater)


def test_a_refused_record_leaves_no_trace(driver, updater, group):
    """An event whose record was refused while updating counts as it did before."""
    event = driver.event()
    driver.record(event, updater)
    driver.update_begin(updater, group)
    with refused(507009):
        driver.record(event, updater)
    driver.update_end(updater)
    driver.synchronize_event(event)
    assert driver.completed(event)


def test_a_replay_on_an_updating_stream(driver, updater, graph_and_group):
    """507009, and the graph is not running."""
    graph, group = graph_and_group
    driver.update_begin(updater, group)
    with refused(507009):
        driver.replay(graph, updater)
    driver.update_end(updater)
    driver.destroy_graph(graph)


def test_an_update_may_begin_and_end_in_different_threads(driver, stream, updater, x, graph_and_group):
    """An update belongs to its stream."""
    graph, group = graph_and_group
    elsewhere(driver.update_begin, updater, group)
    driver.add(x, 10, updater, name="first")
    driver.add(x, 20, updater, name="second")
    elsewhere(driver.update_end, updater)
    driver.synchronize(updater)
    assert replayed(driver, graph, stream, x) == 30


def test_the_handle_of_a_destroyed_graph(driver, updater, x, graph_and_group):
    """107017, also when a later graph has groups."""
    graph, group = graph_and_group
    driver.destroy_graph(graph)
    other = driver.stream()
    with driver.capturing(other), driver.group(other):
        driver.add(x, 1, other)
    with refused(107017):
        driver.update_begin(updater, group)
    with refused(107017):
        driver.update_begin(updater, None)


def test_a_graph_that_is_destroyed_during_its_update(driver, updater, x, graph_and_group):
    """The update can be ended, and has no effect."""
    graph, group = graph_and_group
    driver.update_begin(updater, group)
    driver.add(x, 10, updater, name="first")
    driver.add(x, 20, updater, name="second")
    driver.destroy_graph(graph)
    driver.update_end(updater)
    driver.synchronize(updater)
    assert driver.read(x) == 0


def test_the_printed_graph_names_its_groups(driver, graph_and_group, tmp_path):
    """The debug output is a timeline with the kinds, names and groups of all tasks."""
    path = tmp_path / "graph.json"
    driver.call("aclmdlRIDebugJsonPrint", ctypes.c_void_p(graph_and_group[0]), str(path).encode(), ctypes.c_uint32(0))
    first, second = json.loads(path.read_text())
    assert [first["name"], second["name"], first["args"]["Task Type"]] == ["first", "second", "kernel"]
    assert first["args"]["Task Group"] == second["args"]["Task Group"]
