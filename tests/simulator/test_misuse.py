"""Misuse is refused with a code and a diagnosis, never by a crash; failures are reported once."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace

import pytest

from simulator.driver import ON_DEVICE, TO_DEVICE, TO_HOST, refused

P, SIZE, I32, U32, U64 = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int32, ctypes.c_uint32, ctypes.c_uint64
NULL = P(None)


@pytest.mark.parametrize("wrong", [8, 2**63, 2**64 - 1])
@pytest.mark.parametrize(
    "call",
    [
        lambda at: at.driver.destroy_stream(at.wrong),
        lambda at: at.driver.destroy_stream(at.wrong, force=True),
        lambda at: at.driver.synchronize(at.wrong),
        lambda at: at.driver.done(at.wrong),
        lambda at: at.driver.stream_id(at.wrong),
        lambda at: at.driver.record(at.event, at.wrong),
        lambda at: at.driver.wait(at.event, at.wrong),
        lambda at: at.driver.reset_event(at.event, at.wrong),
        lambda at: at.driver.value_wait(at.event, 1, at.wrong),
        lambda at: at.driver.value_write(at.event, 1, at.wrong),
        lambda at: at.driver.add(0, 1, at.wrong),
        lambda at: at.driver.host_function(lambda: None, at.wrong),
        lambda at: at.driver.capture_begin(at.wrong),
        lambda at: at.driver.capture_end(at.wrong),
        lambda at: at.driver.capture_status(at.wrong),
        lambda at: at.driver.group_begin(at.wrong),
        lambda at: at.driver.group_end(at.wrong),
        lambda at: at.driver.update_begin(at.wrong, None),
        lambda at: at.driver.update_end(at.wrong),
        lambda at: at.driver.replay(at.wrong),
        lambda at: at.driver.destroy_graph(at.wrong),
        lambda at: at.driver.destroy_event(at.wrong),
        lambda at: at.driver.record(at.wrong),
        lambda at: at.driver.wait(at.wrong),
        lambda at: at.driver.completed(at.wrong),
        lambda at: at.driver.synchronize_event(at.wrong),
        lambda at: at.driver.update_begin(None, at.wrong),
    ],
)
def test_unknown_handles(driver, call, wrong):
    """107017, and the driver works on."""
    with refused(107017):
        call(SimpleNamespace(driver=driver, wrong=wrong, event=driver.event()))
    driver.synchronize_device()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aclrtCreateStream", [NULL]),
        ("aclrtCreateEvent", [NULL]),
        ("aclrtMalloc", [NULL, SIZE(8), I32(0)]),
        ("aclrtMallocHost", [NULL, SIZE(8)]),
        ("aclrtGetDevice", [NULL]),
        ("aclrtGetDeviceCount", [NULL]),
        ("aclrtGetCurrentContext", [NULL]),
        ("aclrtGetMemInfo", [I32(0), NULL, NULL]),
        ("aclrtStreamQuery", [NULL, NULL]),
        ("aclrtStreamGetId", [NULL, NULL]),
        ("aclrtLaunchHostFunc", [NULL, NULL, NULL]),
        ("aclrtLaunchCallback", [NULL, NULL, I32(0), NULL]),
        ("aclmdlRICaptureThreadExchangeMode", [NULL]),
        ("aclrtMemcpy", [NULL, SIZE(8), NULL, SIZE(8), I32(TO_DEVICE)]),
        ("aclrtMemcpy", [NULL, SIZE(8), NULL, SIZE(8), I32(4)]),
        ("aclrtMemcpyAsync", [NULL, SIZE(8), NULL, SIZE(8), I32(ON_DEVICE), NULL]),
        ("aclrtMemset", [NULL, SIZE(8), I32(0), SIZE(8)]),
        ("aclrtMemsetAsync", [NULL, SIZE(8), I32(0), SIZE(8), NULL]),
        ("aclrtHostUnregister", [NULL]),
        ("aclsysGetCANNVersion", [I32(0), NULL]),
        ("aclsysGetVersionStr", [NULL, NULL]),
        ("aclrtGetSysParamOpt", [I32(0), NULL]),
        ("aclGetCompileopt", [I32(0), NULL, SIZE(8)]),
        ("aclGetDeviceCapability", [U32(0), I32(0), NULL]),
        ("aclrtDeviceCanAccessPeer", [NULL, I32(0), I32(1)]),
        ("aclGetViewShape", [NULL, NULL, NULL]),
    ],
)
def test_null_pointers(driver, name, arguments):
    """107000."""
    with refused(107000):
        driver.call(name, *arguments)


@pytest.mark.parametrize("name", ["aclrtQueryEventStatus", "aclrtQueryEventWaitStatus", "aclrtEventGetTimestamp"])
def test_no_place_for_what_an_event_says(driver, name):
    """107000."""
    with refused(107000):
        driver.call(name, P(driver.event()), NULL)


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("aclCreateTensor", [NULL, U64(2), I32(0), NULL, U64(0), I32(2), NULL, U64(0), NULL]),
        ("aclCreateScalar", [NULL, I32(0)]),
        ("aclCreateIntArray", [NULL, U64(3)]),
        ("aclCreateFloatArray", [NULL, U64(3)]),
        ("aclCreateBoolArray", [NULL, U64(3)]),
        ("aclCreateTensorList", [NULL, U64(3)]),
        ("aclCreateScalarList", [NULL, U64(3)]),
    ],
)
def test_descriptors_of_nothing(driver, name, arguments):
    """They are null, and the diagnosis is there."""
    function = getattr(driver.library, name)
    function.restype = P
    assert function(*arguments) is None
    assert driver.library.aclGetRecentErrMsg().startswith(b"107000")


def test_empty_copies_and_fills(driver):
    """Nothing of nothing is fine, wherever it is."""
    for kind in (TO_DEVICE, TO_HOST, ON_DEVICE):
        driver.copy(None, None, 0, kind)
        driver.copy_async(None, None, 0, kind)
    driver.fill(None, 0, 0)
    driver.fill_async(None, 0, 0)
    driver.synchronize()


@pytest.mark.parametrize("kind", [TO_DEVICE, ON_DEVICE, 4])
def test_copies_out_of_bounds(driver, kind):
    """107000 names the side, the size and the place; sizes beyond all memory are no exception."""
    x, y = driver.allocate(16), driver.allocate(16)
    for size in (17, 2**64 - 8):
        with refused(107000, "the destination", str(size)):
            driver.copy(x, y, size, kind)
        with refused(107000, "the destination"):
            driver.copy_async(x, y, size, kind)
    with refused(107000, "the source"):
        driver.copy(x, y + 8, 16, ON_DEVICE)


def test_fills_out_of_bounds(driver):
    """107000."""
    x = driver.allocate(16)
    for size in (17, 2**64 - 8):
        with refused(107000):
            driver.fill(x, 0, size)
        with refused(107000):
            driver.fill_async(x, 0, size)


def test_copies_that_are_larger_than_their_room(driver):
    """107000."""
    x = driver.allocate(16)
    with refused(107000, "more bytes than"):
        driver.call("aclrtMemcpy", P(x), SIZE(8), P(x), SIZE(16), I32(ON_DEVICE))
    with refused(107000, "more bytes than"):
        driver.call("aclrtMemset", P(x), SIZE(8), I32(0), SIZE(16))


def test_a_copy_of_an_unknown_kind(driver):
    """107000."""
    x = driver.allocate(16)
    for kind in (-1, 5):
        with refused(107000):
            driver.copy(x, x, 8, kind)


@pytest.mark.parametrize(
    ("address", "words"), [(lambda x: x, "a block of 8"), (lambda _: None, "null"), (lambda _: 4096, "in no block")]
)
def test_kernels_out_of_bounds(driver, address, words):
    """A kernel whose argument is not inside live memory does not run: 507015 at the next synchronisation."""
    x = driver.number()
    driver.add(address(x), 1, name="wild", count=2)
    with refused(507015, "argument 0 of wild (16 bytes", words):
        driver.synchronize()
    assert driver.read(x) == 0


def test_a_failure_is_reported_once(driver):
    """The stream goes on, and the next synchronisation succeeds."""
    stream, x = driver.stream(), driver.number()
    driver.add(None, 1, stream)
    driver.add(x, 1, stream)
    with refused(507015):
        driver.synchronize(stream)
    driver.synchronize(stream)
    assert driver.read(x) == 1


def test_the_first_of_two_failures_is_reported(driver):
    """The second is only told on stderr."""
    driver.add(None, 1, name="first")
    driver.add(None, 1, name="second")
    with refused(507015, "first"):
        driver.synchronize()
    driver.synchronize()


def test_a_failure_belongs_to_its_stream(driver):
    """Another stream's synchronisation does not report it, the device's does; until then it can be peeked at."""
    stream, other = driver.stream(), driver.stream()
    driver.add(None, 1, stream)
    driver.synchronize(other)
    while not driver.done(stream):
        pass
    assert driver.last_error() == 507015
    with refused(507015):
        driver.synchronize_device()
    assert driver.last_error() == 0


def test_misuse_is_counted(driver):
    """Each refusal is one report."""
    before = driver.control.count("reports")
    for _ in range(3):
        with refused(107017):
            driver.destroy_event(8)
    assert driver.control.count("reports") == before + 3


def test_a_diagnosis_is_told_on_stderr(driver, capfd):
    """With code, name and words."""
    with refused(107017):
        driver.destroy_event(8)
    assert "[npu simulator] 107017 INVALID_HANDLE: destroying an event" in capfd.readouterr().err


def test_unknown_modes_and_counts(driver):
    """A capture's mode is one of three."""
    stream = driver.stream()
    for mode in (-1, 3):
        with refused(107000):
            driver.call("aclmdlRICaptureBegin", P(stream), I32(mode))
        with refused(107000):
            driver.call("aclmdlRICaptureThreadExchangeMode", ctypes.byref(I32(mode)))


def test_handles_of_one_kind_are_no_others(driver):
    """A stream is no event, and so on: 107017."""
    stream, event = driver.stream(), driver.event()
    for call in (driver.destroy_event, driver.replay, driver.destroy_graph):
        with refused(107017):
            call(stream)
    for call in (driver.destroy_stream, driver.synchronize, driver.destroy_graph):
        with refused(107017):
            call(event)
