"""The simulated driver through its C interface: no torch, no operators, one kernel that adds."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import struct
import threading
from unittest import mock

import pytest

from npugraph_strategies import errors
from npugraph_strategies.simulator import build
from npugraph_strategies.simulator._control import Control

DEVICES = 2
STALL_SECONDS = 0.05
MODES = {"global": 0, "thread_local": 1, "relaxed": 2}
TO_DEVICE, TO_HOST, ON_DEVICE = 1, 2, 3
AT_LEAST, EQUAL, SHARES_BITS, LACKS_BITS = range(4)

P, SIZE, I32, U32, U64, DOUBLE = (
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int32,
    ctypes.c_uint32,
    ctypes.c_uint64,
    ctypes.c_double,
)
HOST_FUNCTION = ctypes.CFUNCTYPE(None, P)


class DriverError(Exception):
    """A call returned something else than 0; the text is that of ``aclGetRecentErrMsg``."""

    def __init__(self, code, text):
        super().__init__(code, text)
        self.code, self.text = code, text


@contextlib.contextmanager
def refused(code, *parts):
    """Expect a code, and words in its diagnosis."""
    with pytest.raises(DriverError) as caught:
        yield caught
    assert caught.value.code == code, caught.value.text
    for part in parts:
        assert part in caught.value.text


def elsewhere(function, *arguments):
    """Call in a fresh thread, to the end; return or raise what it does."""
    done = []

    def call():
        try:
            done.append((function(*arguments), None))
        except BaseException as error:  # noqa: BLE001 - handed to the caller's thread
            done.append((None, error))

    thread = threading.Thread(target=call)
    thread.start()
    thread.join()
    result, error = done[0]
    if error is not None:
        raise error
    return result


@functools.cache
def library():
    """Return the driver's library, built from the sources if need be."""
    path = build(core_only=True) / "libascendcl.so"
    ours = {name: value for name, value in os.environ.items() if not name.startswith("NPUGRAPH_SIM_")}
    with mock.patch.dict(os.environ, {**ours, "NPUGRAPH_SIM_DEVICES": str(DEVICES)}, clear=True):
        loaded = ctypes.CDLL(str(path))
        loaded.npusim_count.restype = U64
        loaded.npusim_count(b"memory", I32(0))  # the settings are read now
    loaded.npusim_trace_order.restype = U64
    loaded.aclGetRecentErrMsg.restype = ctypes.c_char_p
    return loaded


def fresh():
    """Return a driver as in a fresh process, with device 0 set in this thread."""
    try:
        loaded = library()
    except errors.RuntimeUnavailable as error:
        pytest.skip(str(error))
    loaded.npusim_reset()
    driver = Driver(loaded)
    driver.control.seed(None)
    driver.control.stall_seconds(STALL_SECONDS)
    driver.control.strict(True)
    driver.control.limits(streams=1984, events=65536)
    driver.set_device(0)
    driver.exchange_mode("global")
    return driver


class Driver:
    """Calls by what they do. Handles are integers; streams default to the default one."""

    def __init__(self, loaded):
        self.library, self.control = loaded, Control(loaded)
        self._allocated, self._kept = set(), []

    def release(self):
        """Drop what is queued and free what was allocated."""
        self.library.npusim_reset()
        for address in self._allocated:
            self.library.aclrtFree(P(address))

    def call(self, name, *arguments):
        """Call a function that returns a code."""
        self.library.aclGetRecentErrMsg()
        if code := getattr(self.library, name)(*arguments):
            raise DriverError(code, self.library.aclGetRecentErrMsg().decode())

    def get(self, kind, name, *arguments, first=True):
        """Call a function that returns a code and hands a value out, as its first or last argument."""
        out = kind()
        place = ctypes.byref(out)
        self.call(name, *((place, *arguments) if first else (*arguments, place)))
        return out.value

    # Devices and streams
    def set_device(self, index):
        self.call("aclrtSetDevice", I32(index))

    def synchronize_device(self):
        self.call("aclrtSynchronizeDevice")

    def stream(self):
        return self.get(P, "aclrtCreateStream")

    def destroy_stream(self, stream, *, force=False):
        self.call("aclrtDestroyStreamForce" if force else "aclrtDestroyStream", P(stream))

    def synchronize(self, stream=None, *, milliseconds=None):
        if milliseconds is None:
            self.call("aclrtSynchronizeStream", P(stream))
        else:
            self.call("aclrtSynchronizeStreamWithTimeout", P(stream), I32(milliseconds))

    def done(self, stream):
        return self.get(I32, "aclrtStreamQuery", P(stream), first=False) == 0

    def stream_id(self, stream):
        return self.get(I32, "aclrtStreamGetId", P(stream), first=False)

    def last_error(self):
        return self.library.aclrtPeekAtLastError(I32(0))

    # Events
    def event(self, *, external=False):
        return self.get(P, "aclrtCreateEventWithFlag", U32(0x20 if external else 0))

    def destroy_event(self, event):
        self.call("aclrtDestroyEvent", P(event))

    def record(self, event, stream=None):
        self.call("aclrtRecordEvent", P(event), P(stream))

    def wait(self, event, stream=None):
        self.call("aclrtStreamWaitEvent", P(stream), P(event))

    def reset_event(self, event, stream=None):
        self.call("aclrtResetEvent", P(event), P(stream))

    def synchronize_event(self, event):
        self.call("aclrtSynchronizeEvent", P(event))

    def completed(self, event):
        return self.get(I32, "aclrtQueryEventStatus", P(event), first=False) == 1

    def value_wait(self, address, value, stream=None, *, flag=EQUAL):
        self.call("aclrtValueWait", P(address), U64(value), U32(flag), P(stream))

    def value_write(self, address, value, stream=None):
        self.call("aclrtValueWrite", P(address), U64(value), U32(0), P(stream))

    # Memory
    def allocate(self, size):
        address = self.get(P, "aclrtMalloc", SIZE(size), I32(0))
        self._allocated.add(address)
        return address

    def free(self, address):
        self.call("aclrtFree", P(address))
        self._allocated.discard(address)

    def pinned(self, size):
        return self.get(P, "aclrtMallocHost", SIZE(size))

    def free_pinned(self, address):
        self.call("aclrtFreeHost", P(address))

    def copy(self, to, source, size, kind):
        self.call("aclrtMemcpy", P(to), SIZE(size), P(source), SIZE(size), I32(kind))

    def copy_async(self, to, source, size, kind, stream=None):
        self.call("aclrtMemcpyAsync", P(to), SIZE(size), P(source), SIZE(size), I32(kind), P(stream))

    def fill(self, to, value, size):
        self.call("aclrtMemset", P(to), SIZE(size), I32(value), SIZE(size))

    def fill_async(self, to, value, size, stream=None):
        self.call("aclrtMemsetAsync", P(to), SIZE(size), I32(value), SIZE(size), P(stream))

    def bytes_at(self, address, size):
        """Return device memory's content as it is now, whatever is queued."""
        out = ctypes.create_string_buffer(size)
        self.copy(ctypes.addressof(out), address, size, TO_HOST)
        return out.raw

    def flag(self):
        """Return the memory of an external event as torch_npu makes it: 32 bytes of zeros."""
        address = self.allocate(32)
        self.fill(address, 0, 32)
        return address

    def number(self, value=0.0):
        """Return a number on the device."""
        address = self.allocate(8)
        content = DOUBLE(value)
        self.copy(address, ctypes.addressof(content), 8, TO_DEVICE)
        return address

    def read(self, address):
        """Return a number of the device as it is now, whatever is queued."""
        return struct.unpack("d", self.bytes_at(address, 8))[0]

    # Work
    def add(self, address, value, stream=None, *, name="add", count=1):
        self.call("npusim_launch_add", name.encode(), P(stream), P(address), U64(count), DOUBLE(value))

    def host_function(self, function, stream=None):
        kept = HOST_FUNCTION(lambda _: function())
        self._kept.append(kept)
        self.call("aclrtLaunchHostFunc", P(stream), kept, P(None))

    # Captures and graphs
    def capture_begin(self, stream, mode="global"):
        self.call("aclmdlRICaptureBegin", P(stream), I32(MODES[mode]))

    def capture_end(self, stream):
        return self.get(P, "aclmdlRICaptureEnd", P(stream), first=False)

    def capture_status(self, stream):
        """Return "none", "active" or "invalidated"."""
        status = I32()
        self.call("aclmdlRICaptureGetInfo", P(stream), ctypes.byref(status), P(None))
        return ("none", "active", "invalidated")[status.value]

    @contextlib.contextmanager
    def capturing(self, stream, mode="global"):
        """Capture what the block launches; the graph is the list's only element afterwards."""
        made = []
        self.capture_begin(stream, mode)
        yield made
        made.append(self.capture_end(stream))

    def exchange_mode(self, mode):
        """Set this thread's mode; return the one before."""
        value = I32(MODES[mode])
        self.call("aclmdlRICaptureThreadExchangeMode", ctypes.byref(value))
        return list(MODES)[value.value]

    def replay(self, graph, stream=None):
        self.call("aclmdlRIExecuteAsync", P(graph), P(stream))

    def destroy_graph(self, graph):
        self.call("aclmdlRIDestroy", P(graph))

    # Task groups and updates
    def group_begin(self, stream):
        self.call("aclmdlRICaptureTaskGrpBegin", P(stream))

    def group_end(self, stream):
        return self.get(P, "aclmdlRICaptureTaskGrpEnd", P(stream), first=False)

    @contextlib.contextmanager
    def group(self, stream):
        """Put what the block launches into a task group; its handle is the list's only element afterwards."""
        made = []
        self.group_begin(stream)
        yield made
        made.append(self.group_end(stream))

    def update_begin(self, stream, group):
        self.call("aclmdlRICaptureTaskUpdateBegin", P(stream), P(group))

    def update_end(self, stream):
        self.call("aclmdlRICaptureTaskUpdateEnd", P(stream))

    @contextlib.contextmanager
    def updating(self, stream, group):
        """Replace a group's tasks by what the block launches."""
        self.update_begin(stream, group)
        yield
        self.update_end(stream)
