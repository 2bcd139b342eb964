"""Streams, ordinary events, host functions, devices and memory outside captures."""

from __future__ import annotations

import ctypes
import math
import struct
import threading

from simulator.driver import HOST_FUNCTION, ON_DEVICE, TO_DEVICE, TO_HOST, elsewhere, refused


def test_a_stream_runs_in_order(driver):
    """Fills, kernels and copies happen as they were launched."""
    stream, x, y = driver.stream(), driver.number(5.0), driver.number()
    driver.fill_async(x, 0, 8, stream)
    driver.add(x, 2, stream)
    driver.copy_async(y, x, 8, ON_DEVICE, stream)
    driver.add(x, 1, stream)
    driver.synchronize(stream)
    assert (driver.read(x), driver.read(y)) == (3, 2)


def test_the_null_handle_is_the_default_stream(driver):
    """Each device has one, which needs no making."""
    x = driver.number()
    driver.add(x, 1, None)
    driver.synchronize(None)
    assert driver.read(x) == 1


def test_streams_have_numbers_of_their_own(driver):
    """The numbers that reports use."""
    assert len({driver.stream_id(driver.stream()) for _ in range(5)}) == 5


def test_an_event_orders_two_streams(driver):
    """Work after the wait happens after the work before the record."""
    first, second, event, gate, x, y = (
        *(driver.stream(), driver.stream(), driver.event()),
        *(driver.flag(), driver.number(), driver.number()),
    )
    driver.value_wait(gate, 1, first)
    driver.add(x, 1, first)
    driver.record(event, first)
    driver.wait(event, second)
    driver.copy_async(y, x, 8, ON_DEVICE, second)
    assert not driver.done(second)
    assert not driver.completed(event)
    driver.value_write(gate, 1)
    driver.synchronize(second)
    assert driver.completed(event)
    assert driver.read(y) == 1


def test_a_wait_is_for_the_last_record_before_it(driver):
    """A record that is asked for after the wait does not hold it up."""
    first, second, event, gates = driver.stream(), driver.stream(), driver.event(), [driver.flag(), driver.flag()]
    driver.record(event, first)
    driver.value_wait(gates[1], 1, second)
    driver.wait(event, second)
    driver.value_wait(gates[0], 1, first)
    driver.record(event, first)
    driver.value_write(gates[1], 1)
    driver.synchronize(second)
    assert not driver.completed(event)


def test_a_wait_for_an_event_that_was_never_recorded(driver):
    """It holds its stream up until somebody records, and the report says that nobody has asked for it."""
    stream, event, x = driver.stream(), driver.event(), driver.number()
    driver.wait(event, stream)
    driver.add(x, 1, stream)
    with refused(507046, "which nobody has asked for", f"stream {driver.stream_id(stream)} of device 0"):
        driver.synchronize(stream)
    driver.record(event)
    driver.synchronize(stream)
    assert driver.read(x) == 1


def test_a_lenient_device_passes_an_event_that_was_never_recorded(driver):
    """Without strictness the wait holds nobody up."""
    driver.control.strict(False)
    stream, event, x = driver.stream(), driver.event(), driver.number()
    driver.wait(event, stream)
    driver.add(x, 1, stream)
    driver.synchronize(stream)
    assert driver.read(x) == 1


def test_an_event_that_is_destroyed_while_it_is_waited_for(driver):
    """What is queued goes on to the end; the handle is dead at once."""
    first, second, event, gate, x = (
        *(driver.stream(), driver.stream(), driver.event()),
        *(driver.flag(), driver.number()),
    )
    driver.value_wait(gate, 1, first)
    driver.record(event, first)
    driver.wait(event, second)
    driver.add(x, 1, second)
    driver.destroy_event(event)
    with refused(107017):
        driver.record(event, first)
    driver.value_write(gate, 1)
    driver.synchronize(second)
    assert driver.read(x) == 1


def test_the_time_between_two_events(driver):
    """It is that of the device, and needs both records to have happened."""
    begin, end, ms = driver.event(), driver.event(), ctypes.c_float()
    arguments = (ctypes.byref(ms), ctypes.c_void_p(begin), ctypes.c_void_p(end))
    with refused(107000):
        driver.call("aclrtEventElapsedTime", *arguments)
    driver.record(begin)
    driver.host_function(lambda: threading.Event().wait(0.01))
    driver.record(end)
    driver.synchronize()
    driver.call("aclrtEventElapsedTime", *arguments)
    assert ms.value >= 10


def test_host_functions_run_in_order(driver):
    """They run after what is before them, on a thread of their own, and hold up what is after them."""
    stream, x, seen = driver.stream(), driver.number(), []
    driver.add(x, 1, stream)
    driver.host_function(lambda: seen.append((driver.read(x), threading.get_ident())), stream)
    driver.add(x, 1, stream)
    driver.host_function(lambda: seen.append((driver.read(x), threading.get_ident())), stream)
    driver.synchronize(stream)
    assert [value for value, _ in seen] == [1, 2]
    assert threading.get_ident() not in {thread for _, thread in seen}


def test_a_host_function_holds_up_its_own_stream_only(driver):
    """Others go on while it runs."""
    slow, other, x, go = driver.stream(), driver.stream(), driver.number(), threading.Event()
    driver.host_function(go.wait, slow)
    driver.add(x, 1, other)
    driver.synchronize(other)
    assert driver.read(x) == 1
    assert not driver.done(slow)
    go.set()
    driver.synchronize(slow)


def test_a_host_function_that_waits_for_its_own_stream(driver):
    """That can never end: it is told so, and the stream goes on."""
    stream, codes = driver.stream(), []

    def wait():
        with refused(507046) as caught:
            driver.synchronize(stream)
        codes.append(caught.value.code)

    driver.host_function(wait, stream)
    driver.synchronize(stream)
    assert codes == [507046]


def test_callbacks_run_on_the_thread_that_subscribed(driver):
    """They wait until it asks for them, and hold up what is after them; a stall is told meanwhile."""
    stream, x, seen = driver.stream(), driver.number(), []
    function = HOST_FUNCTION(lambda _: seen.append((driver.read(x), threading.get_ident())))
    driver.call("aclrtSubscribeReport", ctypes.c_uint64(threading.get_ident()), ctypes.c_void_p(stream))
    driver.call("aclrtLaunchCallback", function, None, 0, ctypes.c_void_p(stream))
    driver.add(x, 1, stream)
    with refused(507046, "host function callback"):
        driver.synchronize(stream)
    driver.call("aclrtProcessReport", 1000)
    driver.synchronize(stream)
    assert seen == [(0, threading.get_ident())]
    assert driver.read(x) == 1


def test_a_callback_of_nobody(driver):
    """Without a subscription it is refused: 107000."""
    function = HOST_FUNCTION(lambda _: None)
    with refused(107000, "no thread subscribed"):
        driver.call("aclrtLaunchCallback", function, None, 0, None)


def test_a_timeout(driver):
    """A synchronisation with a timeout ends in time, and the work goes on."""
    stream, go = driver.stream(), threading.Event()
    driver.host_function(go.wait, stream)
    with refused(507046, "after 10 ms"):
        driver.synchronize(stream, milliseconds=10)
    go.set()
    driver.synchronize(stream)


def test_a_slow_task_is_no_stall(driver):
    """A stall is when nothing can move; a host function that takes its time is not."""
    stream = driver.stream()
    driver.control.stall_seconds(0.001)
    driver.host_function(lambda: threading.Event().wait(0.05), stream)
    driver.synchronize(stream)


def test_a_thread_that_still_works_is_no_stall(driver):
    """Whoever puts work on a stream meanwhile puts the report off."""
    stream, flag = driver.stream(), driver.flag()
    driver.value_wait(flag, 1, stream)

    def work():
        driver.set_device(0)
        for _ in range(20):
            threading.Event().wait(0.01)
            driver.record(driver.event())
        driver.value_write(flag, 1)

    thread = threading.Thread(target=work)
    thread.start()
    driver.synchronize(stream)
    thread.join()


def test_fresh_memory_is_poisoned(driver):
    """Every byte is 0xFF, a NaN in every floating-point type."""
    address = driver.allocate(1000)
    content = driver.bytes_at(address, 1000)
    assert content == b"\xff" * 1000
    assert math.isnan(struct.unpack("d", content[:8])[0])


def test_memory_does_not_come_back(driver):
    """What was freed is never handed out again, so that a stale address is always known for one."""
    seen = set()
    for _ in range(50):
        address = driver.allocate(4096)
        assert address not in seen
        seen.add(address)
        driver.free(address)


def test_pageable_memory_is_staged(driver):
    """A copy from pageable memory takes the source as it is at the call."""
    stream, x, gate, source = driver.stream(), driver.number(), driver.flag(), ctypes.c_double(1)
    driver.value_wait(gate, 1, stream)
    driver.copy_async(x, ctypes.addressof(source), 8, TO_DEVICE, stream)
    source.value = 2
    driver.value_write(gate, 1)
    driver.synchronize(stream)
    assert driver.read(x) == 1


def test_pinned_memory_is_not_staged(driver):
    """A copy from pinned memory takes the source when it happens: changing it before is a race that shows."""
    stream, x, gate, pinned = driver.stream(), driver.number(), driver.flag(), driver.pinned(8)
    source = ctypes.c_double.from_address(pinned)
    source.value = 1
    driver.value_wait(gate, 1, stream)
    driver.copy_async(x, pinned, 8, TO_DEVICE, stream)
    source.value = 2
    driver.value_write(gate, 1)
    driver.synchronize(stream)
    assert driver.read(x) == 2
    driver.free_pinned(pinned)


def test_a_copy_into_pageable_memory_has_happened_at_its_return(driver):
    """The caller is blocked until then."""
    stream, x, out = driver.stream(), driver.number(), ctypes.c_double()
    driver.add(x, 1, stream)
    driver.copy_async(ctypes.addressof(out), x, 8, TO_HOST, stream)
    assert out.value == 1


def test_a_copy_that_timed_out_never_happens(driver):
    """A copy into pageable memory that was reported as stalled leaves that memory alone later on."""
    stream, x, flag, out = driver.stream(), driver.number(1.0), driver.flag(), ctypes.c_double()
    driver.value_wait(flag, 1, stream)
    with refused(507046):
        driver.copy_async(ctypes.addressof(out), x, 8, TO_HOST, stream)
    driver.value_write(flag, 1)
    driver.synchronize(stream)
    assert out.value == 0


def test_devices_have_streams_and_memory_of_their_own(driver):
    """What is made belongs to the device that is set in the thread."""
    x = driver.number()
    driver.set_device(1)
    y, stream = driver.number(), driver.stream()
    driver.add(y, 1, stream)
    driver.synchronize_device()
    assert [driver.control.count("streams", device) for device in (0, 1)] == [0, 1]
    assert driver.control.count("memory", 1) == 8
    driver.set_device(0)
    driver.add(x, 1)
    driver.synchronize()
    assert (driver.read(x), driver.read(y)) == (1, 1)


def test_an_event_orders_two_devices(driver):
    """A stream can wait for a record on another device."""
    event, stream, gate = driver.event(), driver.stream(), driver.flag()
    driver.value_wait(gate, 1, stream)
    driver.record(event, stream)
    driver.set_device(1)
    other = driver.stream()
    driver.wait(event, other)
    assert not driver.done(other)
    driver.value_write(gate, 1)
    driver.synchronize(other)
    assert driver.completed(event)


def test_a_graph_stays_on_its_device(driver):
    """Launched on a stream of another: 107003."""
    stream = driver.stream()
    with driver.capturing(stream) as made:
        pass
    driver.set_device(1)
    with refused(107003):
        driver.replay(made[0], driver.stream())


def test_a_fresh_thread_has_no_device(driver):
    """It has to set one before it can make anything: 107002."""
    for call in (driver.stream, driver.event, lambda: driver.allocate(8), driver.synchronize_device):
        with refused(107002):
            elsewhere(call)


def test_there_is_no_other_device(driver):
    """107001."""
    for index in (-1, 2):
        with refused(107001):
            driver.set_device(index)
