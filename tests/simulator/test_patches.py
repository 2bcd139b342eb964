"""When an update's patch takes effect: in the order of the update stream, whatever the graph does."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.driver import fresh, refused


class Loop:
    """A graph that waits for a flag and then adds what its group says; and a stream that updates it."""

    def __init__(self, driver):
        self.driver, self.flag, self.x = driver, driver.flag(), driver.number()
        self.stream, self.updater = driver.stream(), driver.stream()
        with driver.capturing(self.stream) as graphs:
            driver.value_wait(self.flag, 1, self.stream)
            driver.value_write(self.flag, 0, self.stream)
            with driver.group(self.stream) as groups:
                driver.add(self.x, 1, self.stream)
        self.graph, self.group = graphs[0], groups[0]

    def update(self, value):
        with self.driver.updating(self.updater, self.group):
            self.driver.add(self.x, value, self.updater)

    def record(self):
        self.driver.value_write(self.flag, 1, self.updater)

    def replay(self):
        self.driver.replay(self.graph, self.stream)


@pytest.fixture
def loop(driver):
    """Return a graph with an updatable task behind a wait."""
    return Loop(driver)


def test_a_patch_reaches_a_running_replay(driver, loop):
    """A replay that waits in front of the task runs the patched one."""
    loop.replay()
    assert not driver.done(loop.stream)
    loop.update(100)
    loop.record()
    driver.synchronize(loop.stream)
    assert driver.read(loop.x) == 100


def test_a_patch_before_the_replay(driver, loop):
    """Update, record, replay: the same result."""
    loop.update(100)
    loop.record()
    driver.synchronize(loop.updater)
    loop.replay()
    driver.synchronize(loop.stream)
    assert driver.read(loop.x) == 100


def test_a_patch_is_ordered_on_the_update_stream(driver, loop):
    """While the update stream waits, replays run the old task."""
    gate = driver.flag()
    driver.value_wait(gate, 1, loop.updater)
    loop.update(100)
    driver.value_write(loop.flag, 1)
    loop.replay()
    driver.synchronize(loop.stream)
    assert driver.read(loop.x) == 1
    driver.value_write(gate, 1)
    driver.synchronize(loop.updater)
    driver.value_write(loop.flag, 1)
    loop.replay()
    driver.synchronize(loop.stream)
    assert driver.read(loop.x) == 101


def test_a_patch_lasts(driver, loop):
    """Later replays run the patched task until the next patch."""
    loop.update(100)
    for expected in (100, 200):
        loop.record()
        loop.replay()
        driver.synchronize(loop.stream)
        assert driver.read(loop.x) == expected


def test_the_last_of_two_patches_counts(driver, loop):
    """Patches of one stream happen in their order."""
    loop.update(10)
    loop.update(100)
    loop.record()
    loop.replay()
    driver.synchronize(loop.stream)
    assert driver.read(loop.x) == 100


def test_an_update_behind_its_own_replay_hangs(driver, loop):
    """The update stream must not be the one that replays: the record comes too late, and the host is told."""
    loop.updater = loop.stream
    loop.replay()
    loop.update(100)
    loop.record()
    with refused(507046, "task 0 of 3"):
        driver.synchronize(loop.stream)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 200), st.booleans(), st.lists(st.integers(1, 9), min_size=1, max_size=5))
def test_each_replay_sees_its_own_update(seed, update_first, values):
    """With one synchronisation a step, either order of update and replay gives each replay its own value."""
    driver = fresh()
    loop, expected = Loop(driver), 0
    driver.control.seed(seed)
    for value in values:
        if update_first:
            loop.update(value)
            loop.record()
            loop.replay()
        else:
            loop.replay()
            loop.update(value)
            loop.record()
        driver.synchronize(loop.stream)
        expected += value
        assert driver.read(loop.x) == expected
    driver.release()


def outcomes(order):
    """Return the results of three steps without synchronisation under many schedules; None is a stall."""
    seen = set()
    for seed in range(40):
        driver = fresh()
        loop = Loop(driver)
        driver.control.stall_seconds(0.002)
        driver.control.seed(seed)
        done = driver.event()
        for step in range(3):
            if order == "ordered" and step:
                driver.wait(done, loop.updater)
            loop.update(10**step)
            loop.record()
            loop.replay()
            driver.record(done, loop.stream)
        try:
            driver.synchronize(loop.stream)
            seen.add(driver.read(loop.x))
        except Exception as error:  # noqa: BLE001 - the code is what matters
            assert error.code == 507046  # noqa: PT017 - other schedules succeed
            seen.add(None)
        driver.release()
    return seen


def test_steps_that_nothing_orders_go_wrong_under_some_schedule():
    """A record is lost, or a replay runs another step's task; no schedule gives more than that."""
    seen = outcomes("unordered")
    assert None in seen
    assert 111 in seen


def test_steps_that_an_event_orders_are_right_under_every_schedule():
    """An event recorded after each replay and waited for by the update stream is enough."""
    assert outcomes("ordered") == {111}
