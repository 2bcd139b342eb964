"""External events: memory that torch_npu writes and waits for, and events with a flag, outside the graph."""

from __future__ import annotations

import time

import pytest

from simulator.driver import AT_LEAST, EQUAL, LACKS_BITS, SHARES_BITS, refused


class InMemory:
    """As torch_npu 2.13 makes them: record writes 1; wait waits for 1 and writes 0."""

    def __init__(self, driver):
        self._driver, self._address = driver, driver.flag()

    def record(self, stream):
        self._driver.value_write(self._address, 1, stream)

    def wait(self, stream):
        self._driver.value_wait(self._address, 1, stream)
        self._driver.value_write(self._address, 0, stream)


class Flagged:
    """As older drivers had them: events of their own kind, which a reset clears."""

    def __init__(self, driver):
        self._driver, self._event = driver, driver.event(external=True)

    def record(self, stream):
        self._driver.record(self._event, stream)

    def wait(self, stream):
        self._driver.wait(self._event, stream)
        self._driver.reset_event(self._event, stream)


@pytest.fixture(params=[InMemory, Flagged])
def event(request, driver):
    """Return an external event of either kind."""
    return request.param(driver)


@pytest.fixture
def waiting(driver, event):
    """Return a graph that waits for the event and then counts, the count, and a stream to replay on."""
    stream, x = driver.stream(), driver.number()
    with driver.capturing(stream) as made:
        event.wait(stream)
        driver.add(x, 1, stream)
    return made[0], x, stream


def test_record_before_replay(driver, event, waiting):
    """A record may come before the wait."""
    graph, x, stream = waiting
    event.record(driver.stream())
    driver.synchronize_device()
    driver.replay(graph, stream)
    driver.synchronize(stream)
    assert driver.read(x) == 1


def test_record_after_replay(driver, event, waiting):
    """A replay waits for the record of another stream."""
    graph, x, stream = waiting
    driver.replay(graph, stream)
    assert not driver.done(stream)
    event.record(driver.stream())
    driver.synchronize(stream)
    assert driver.read(x) == 1


def test_a_replay_without_record_hangs(driver, event, waiting):
    """The host is told with 507046; a record later on lets it go on."""
    graph, x, stream = waiting
    driver.replay(graph, stream)
    with refused(507046):
        driver.synchronize(stream)
    assert driver.read(x) == 0
    event.record(driver.stream())
    driver.synchronize(stream)
    assert driver.read(x) == 1


def test_a_wait_consumes_its_record(driver, event, waiting):
    """Of two replays after one record, the second hangs."""
    graph, x, stream = waiting
    event.record(driver.stream())
    driver.replay(graph, stream)
    driver.replay(graph, stream)
    with refused(507046, "replay 2"):
        driver.synchronize(stream)
    assert driver.read(x) == 1


def test_two_records_collapse(driver, event, waiting):
    """Two records before one wait are worth one."""
    graph, x, stream = waiting
    other = driver.stream()
    event.record(other)
    event.record(other)
    driver.synchronize(other)
    driver.replay(graph, stream)
    driver.synchronize(stream)
    driver.replay(graph, stream)
    with refused(507046):
        driver.synchronize(stream)
    assert driver.read(x) == 1


def test_one_record_for_each_replay(driver, event, waiting):
    """Replays and records that take turns all go through."""
    graph, x, stream = waiting
    other = driver.stream()
    for expected in range(1, 6):
        driver.replay(graph, stream)
        event.record(other)
        driver.synchronize(stream)
        assert driver.read(x) == expected


def test_a_captured_record(driver, event):
    """A graph can record what another stream waits for; the capture's end does not mind."""
    stream, other, x = driver.stream(), driver.stream(), driver.number()
    with driver.capturing(stream) as made:
        driver.add(x, 1, stream)
        event.record(stream)
    event.wait(other)
    driver.add(x, 10, other)
    with refused(507046):
        driver.synchronize(other)
    driver.replay(made[0], stream)
    driver.synchronize(other)
    assert driver.read(x) == 11


@pytest.mark.parametrize(
    ("flag", "wanted", "passes", "blocks"),
    [
        (AT_LEAST, 5, [5, 6, 2**62], [4, 0]),
        (AT_LEAST, 2, [2, 3], [2**64 - 1]),
        (EQUAL, 5, [5], [4, 6, 0]),
        (SHARES_BITS, 6, [2, 4, 7], [1, 8, 0]),
        (LACKS_BITS, 2**64 - 2, [0, 2], [1, 2**64 - 1]),
    ],
    ids=["at least", "at least, by signed difference", "equal", "shares bits", "lacks bits"],
)
def test_comparisons_of_value_waits(driver, flag, wanted, passes, blocks):
    """Each flag's comparison, on values that let the stream go on and on values that do not."""
    address, stream = driver.flag(), driver.stream()
    for value in passes:
        driver.value_write(address, value, stream)
        driver.value_wait(address, wanted, stream, flag=flag)
        driver.synchronize(stream)
    for value in blocks:
        driver.value_write(address, value, stream)
        driver.value_wait(address, wanted, stream, flag=flag)
        with refused(507046, f"(it is {value})"):
            driver.synchronize(stream)
        driver.destroy_stream(stream, force=True)
        stream = driver.stream()


def test_a_copy_of_the_host_can_end_a_wait(driver):
    """The device sees what a synchronous copy or fill writes, while it waits and nobody waits for it."""
    address, stream = driver.flag(), driver.stream()
    driver.value_wait(address, 2**64 - 1, stream)
    driver.synchronize()
    assert not driver.done(stream)
    driver.fill(address, 0xFF, 8)
    deadline = time.monotonic() + 5
    while not driver.done(stream):
        assert time.monotonic() < deadline


def test_a_kernel_can_end_a_wait(driver):
    """Value waits see what kernels write."""
    number, stream = driver.number(), driver.stream()
    driver.value_wait(number, 0, stream, flag=AT_LEAST)
    driver.value_wait(number, 0x3FF0_0000_0000_0000, stream)  # 1.0
    driver.add(number, 1)
    driver.synchronize(stream)


def test_the_address_of_a_value_wait(driver):
    """It has to be a multiple of 8 inside live device memory: 107000."""
    address = driver.flag()
    for wrong, words in [(address + 4, "multiple of 8"), (address + 32, "in no block"), (None, "null")]:
        with refused(107000, words):
            driver.value_wait(wrong, 1)
        with refused(107000, words):
            driver.value_write(wrong, 1)
    with refused(107000, "flag 4"):
        driver.value_wait(address, 1, flag=4)
