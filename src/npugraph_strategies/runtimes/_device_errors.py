"""Read CANN's error codes out of the RuntimeErrors of torch_npu.

torch_npu raises RuntimeError for everything and leaves the code in the text ("... error code is 207008"), among time
stamps, process ids and advice. Codes and meanings: CANN's runtime documentation of aclError, and docs on streams,
events and graph capture.
"""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

import torch

from npugraph_strategies.errors import DeviceError, DeviceHang, ResourceExhausted

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["MEANINGS", "classify"]

MEANINGS: Final[Mapping[int, str]] = MappingProxyType(
    {
        107024: "a captured stream waits for an event that was not captured",
        107025: "a stream that joined the capture was not joined back before its end",
        107026: "the graph is still being captured",
        107027: "the stream is being captured already, and the call is not allowed under capture",
        107028: "the call is not allowed while a capture is under way",
        107029: "the stream is not being captured",
        107030: "a call that the capture mode forbids was made while a capture is under way",
        107031: "the default stream cannot be captured",
        107032: "an event and a stream belong to different captures",
        107033: "the stream or the task group is in the wrong state: a begin without its end, or the reverse",
        107034: "a task group reaches onto another captured stream",
        107036: "the capture was begun on another stream",
        107037: "the graph is still running",
        107038: "the capture was begun in another thread",
        107041: "an asynchronous call would become a synchronous one under capture",
        207005: "the driver has no resources left",
        207007: "events have run out",
        207008: "streams have run out",
        507009: "a task of this kind cannot be part of a task group",
        507046: "a stream did not finish in time",
        507903: "the capture was invalidated by an earlier error",
    }
)

_EXHAUSTED: Final = frozenset({207005, 207007, 207008})
_HANG: Final = 507046
# Wording of the driver for "no more streams"; it may come with no code at all.
_NO_MORE_STREAMS: Final = re.compile(r"alloc sq cq fail", re.IGNORECASE)
_SAID: Final = re.compile(r"error ?code(?:\s+is)?\s*[:=]?\s*(\d{6})(?!\d)", re.IGNORECASE)
# Without those words only the runtime's own ranges count, and never "PID:107027" or a part of a longer number.
_BARE: Final = re.compile(r"(?<![\w.:-])(107\d{3}|207\d{3}|507\d{3})(?![\w.])")


def classify(error: BaseException, *, doing: str = "a device call") -> DeviceError | None:
    """Return the `DeviceError` that says what `error` means, or None if it is not the device speaking.

    The original text stays in `problem`, after the meaning of the code where it is known. A `DeviceError` is returned
    as it is. Out-of-memory errors of the allocator are not classified: callers catch those by torch's own class.

    >>> classify(RuntimeError("aclrtCreateStream failed, error code is 207008"), doing="new_stream").code
    207008
    >>> classify(RuntimeError("shapes do not match")) is None
    True
    """
    if isinstance(error, DeviceError):
        return error
    if not isinstance(error, RuntimeError) or isinstance(error, torch.OutOfMemoryError):
        return None
    text = str(error)
    found = _SAID.search(text) or _BARE.search(text)
    out_of_streams = _NO_MORE_STREAMS.search(text) is not None
    if found is None and not out_of_streams:
        return None
    code = 207005 if found is None else int(found[1])
    meaning = MEANINGS.get(code)
    problem = text if meaning is None else f"{meaning}; the device said: {text}"
    if out_of_streams or code in _EXHAUSTED:
        return ResourceExhausted(code, doing, problem)
    if code == _HANG:
        return DeviceHang(code, doing, problem)
    return DeviceError(code, doing, problem)
