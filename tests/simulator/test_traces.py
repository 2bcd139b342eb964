"""Traces: what the device did, as lines and as a timeline; and what a process leaves at its end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import time

import pytest

from npugraph_strategies.errors import InvalidSetting
from npugraph_strategies.simulator import _build, build
from simulator.driver import library


@pytest.fixture
def timeline(driver, tmp_path):
    """Return a function that runs another one and returns the events of the timeline by name."""

    def record(work):
        with driver.control.trace() as trace:
            work()
            trace.write(tmp_path / "trace.json")
        events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        return [event for event in events if event["ph"] == "X"], [event for event in events if event["ph"] == "M"]

    return record


def test_lines_name_device_stream_and_task(driver):
    """One line a step."""
    stream, x = driver.stream(), driver.number()
    number = driver.stream_id(stream)
    with driver.control.trace() as trace:
        driver.add(x, 1, stream)
        driver.synchronize(stream)
        assert trace.order() == [f"device 0 stream {number}: kernel add"]


def test_lines_of_a_graph_name_replay_and_task(driver):
    """And the graph itself ends with a line of its own."""
    stream, x = driver.stream(), driver.number()
    with driver.capturing(stream) as made:
        driver.add(x, 1, stream)
    with driver.control.trace() as trace:
        driver.replay(made[0], stream)
        driver.synchronize(stream)
        kernel, graph = trace.order()
    assert kernel.endswith("kernel add (graph 1, replay 1, task 0)")
    assert "graph graph 1 (graph 1, replay 1" in graph


def test_a_trace_begins_empty(driver):
    """What was done before the block is not in it, and nothing is kept after it."""
    x = driver.number()
    with driver.control.trace() as trace:
        driver.add(x, 1)
        driver.synchronize()
    driver.add(x, 1)
    driver.synchronize()
    assert len(trace.order()) == 1
    with driver.control.trace() as trace:
        assert trace.order() == []


def test_streams_are_rows(driver, timeline):
    """Each stream is a named row of its device."""
    first, x = driver.stream(), driver.number()
    driver.set_device(1)
    second, y = driver.stream(), driver.number()

    def work():
        driver.add(x, 1, first)
        driver.add(y, 1, second)
        driver.synchronize(first)
        driver.synchronize(second)

    events, rows = timeline(work)
    expected = {(device, driver.stream_id(stream)) for device, stream in enumerate((first, second))}
    assert {(event["pid"], event["tid"]) for event in events} == expected
    assert {(row["pid"], row["tid"]) for row in rows} == expected
    assert {row["args"]["name"] for row in rows} == {f"stream {number}" for _, number in expected}


def test_a_wait_lasts_as_long_as_it_held_its_stream_up(driver, timeline):
    """At least as long as the host function in front of the record took; a kernel is short."""
    first, second, event, x = driver.stream(), driver.stream(), driver.event(), driver.number()

    def work():
        driver.host_function(lambda: time.sleep(0.02), first)
        driver.record(event, first)
        driver.wait(event, second)
        driver.add(x, 1, second)
        driver.synchronize(second)

    events, _ = timeline(work)
    durations = {one["cat"]: one["dur"] for one in events}
    assert durations["wait"] > 15_000
    assert 0 <= durations["kernel"] < 15_000
    assert all(one["ts"] > 0 and one["dur"] >= 0 for one in events)


def test_patches_are_visible(driver, timeline):
    """A patch is an event of the update stream, and names the group and the graph."""
    stream, updater, x = driver.stream(), driver.stream(), driver.number()
    with driver.capturing(stream) as graphs, driver.group(stream) as groups:
        driver.add(x, 1, stream)

    def work():
        with driver.updating(updater, groups[0]):
            driver.add(x, 2, updater)
        driver.synchronize(updater)
        driver.replay(graphs[0], stream)
        driver.synchronize(stream)

    events, _ = timeline(work)
    patch, kernel, graph = events
    assert (patch["cat"], patch["tid"]) == ("patch", driver.stream_id(updater))
    assert "of graph 1" in patch["name"]
    assert kernel["args"] == {"kind": "kernel", "graph": 1, "replay": 1, "task": 0}
    assert graph["cat"] == "graph"
    assert graph["ts"] <= kernel["ts"]


def test_any_name_gives_valid_json(driver, timeline):
    """Quotes, backslashes, control characters and other alphabets."""
    x, name = driver.number(), '"quoted\\" \n\x01 ключ'

    def work():
        driver.add(x, 1, name=name)
        driver.synchronize()

    events, _ = timeline(work)
    assert events[0]["name"] == '"quoted\\"  ключ'


def test_a_trace_that_cannot_be_written(driver, tmp_path):
    """OSError."""
    with driver.control.trace() as trace, pytest.raises(OSError, match="could not be written"):
        trace.write(tmp_path / "missing" / "trace.json")


def test_steps_are_counted(driver):
    """Each task of a stream or graph is one step, and a launch is one."""
    stream, x = driver.stream(), driver.number()
    with driver.capturing(stream) as made:
        driver.add(x, 1, stream)
    before = driver.control.count("steps")
    driver.replay(made[0], stream)
    driver.synchronize(stream)
    assert driver.control.count("steps") == before + 2


def test_what_control_refuses(driver):
    """Negative seeds and times, and counts that there are not."""
    for call in (
        lambda: driver.control.seed(-1),
        lambda: driver.control.stall_seconds(-0.1),
        lambda: driver.control.count("tasks"),
    ):
        with pytest.raises(InvalidSetting):
            call()


@pytest.mark.usefixtures("driver")
def test_control_finds_the_driver_of_its_process():
    """Wherever that was loaded from; without one the error says so."""
    program = "from npugraph_strategies.simulator import Control; print(Control.current().count('graphs'))"
    assert process(program) == "0\n"
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", program], env=environment(), capture_output=True, text=True, check=False
    )
    assert "this process does not run on it" in done.stderr


def test_the_driver_is_built_without_torch(driver, monkeypatch):
    """Its build does not look for torch."""
    monkeypatch.setattr(_build, "torch_directory", lambda: pytest.fail("the driver needs no torch"))
    assert str(build(core_only=True) / "libascendcl.so") == driver.library._name


def environment(**changes):
    """Return the environment without the simulator, if this process runs on it, and with some changes."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NPUGRAPH_SIM_")}
    return {**kept, "LD_LIBRARY_PATH": "", "TORCH_DEVICE_BACKEND_AUTOLOAD": "0", **changes}


def process(program, **environ):
    """Run a program in a process that has loaded the driver as `driver`; return what it wrote."""
    code = f"import ctypes, os, sys, threading\ndriver = ctypes.CDLL({library()._name!r})\n{textwrap.dedent(program)}"
    done = subprocess.run(  # noqa: S603 - our own code
        [sys.executable, "-c", code],
        env=environment(**environ),
        capture_output=True,
        text=True,
        timeout=20,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


WORK = """
    driver.aclrtSetDevice(0)
    address = ctypes.c_void_p()
    driver.aclrtMalloc(ctypes.byref(address), ctypes.c_size_t(8), 0)
    def add(): return driver.npusim_launch_add(b"add", None, address, ctypes.c_uint64(1), ctypes.c_double(1))
"""


@pytest.mark.usefixtures("driver")
def test_a_process_writes_its_trace_at_exit(tmp_path):
    """Where the setting says, with all that was waited for."""
    path = tmp_path / "trace.json"
    process(
        WORK + "\n    for _ in range(5): add()\n    driver.aclrtSynchronizeDevice()\n", NPUGRAPH_SIM_TRACE=str(path)
    )
    assert [event["name"] for event in json.loads(path.read_text())["traceEvents"]][:5] == ["add"] * 5


@pytest.mark.usefixtures("driver")
@pytest.mark.parametrize("seed", ["", "3"], ids=["free", "seeded"])
def test_a_process_ends_with_work_queued_and_threads_launching(seed, tmp_path):
    """It ends at once, and the trace is whole."""
    path = tmp_path / "trace.json"
    program = """
    def work():
        driver.aclrtSetDevice(0)
        while True: add()
    threads = [threading.Thread(target=work, daemon=True) for _ in range(3)]
    for thread in threads: thread.start()
    threading.Event().wait(0.05)
    """
    process(WORK + program, NPUGRAPH_SIM_TRACE=str(path), NPUGRAPH_SIM_SEED=seed)
    assert json.loads(path.read_text())["traceEvents"]


@pytest.mark.usefixtures("driver")
def test_a_process_ends_with_a_stalled_stream():
    """Nobody waits for it."""
    program = """
    event = ctypes.c_void_p()
    driver.aclrtCreateEvent(ctypes.byref(event))
    driver.aclrtStreamWaitEvent(None, event)
    """
    process(WORK + program)


@pytest.mark.usefixtures("driver")
def test_work_can_be_waited_for_during_exit():
    """As destructors of a library on top of the driver do."""
    program = """
    import atexit
    def last():
        add()
        print(driver.aclrtSynchronizeDevice(), ctypes.c_double.from_address(address.value).value)
    ctypes.c_double.from_address(address.value).value = 1
    atexit.register(last)
    """
    assert process(WORK + program).split() == ["0", "2.0"]


@pytest.mark.usefixtures("driver")
def test_settings_come_from_the_environment():
    """Devices, streams, events, memory, the seed; what is no number is told and left at its default."""
    program = """
    print([driver.aclrtSetDevice(i) for i in range(4)])
    out = ctypes.c_void_p()
    driver.aclrtSetDevice(0)
    print([driver.aclrtCreateStream(ctypes.byref(out)) for _ in range(3)])
    print([driver.aclrtCreateEvent(ctypes.byref(out)) for _ in range(2)])
    print([driver.aclrtMalloc(ctypes.byref(out), ctypes.c_size_t(2**19), 0) for _ in range(3)])
    """
    settings = {"DEVICES": "3", "STREAMS": "2", "EVENTS": "1", "MEMORY": "0.001", "STALL_SECONDS": "soon"}
    assert process(program, **{f"NPUGRAPH_SIM_{name}": value for name, value in settings.items()}).splitlines() == [
        "[0, 0, 0, 107001]",
        "[0, 0, 207008]",
        "[0, 207007]",
        "[0, 0, 207001]",
    ]
