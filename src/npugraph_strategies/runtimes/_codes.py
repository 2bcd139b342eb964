"""The device's error codes: one table.

Numbers and names are CANN's; causes and remedies are in our own words. Both the simulated device and `NpuRuntime`
explain errors from it.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

import attrs

from npugraph_strategies.errors import DeviceError

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["CODES", "Code", "device_error"]


@attrs.frozen
class Code:
    """One error code: its number, CANN's name, what causes it and what to do about it."""

    number: int
    name: str
    cause: str
    remedy: str


CODES: Mapping[int, Code] = MappingProxyType(
    {
        code.number: code
        for code in (
            Code(107000, "PARAM_INVALID", "an argument is not valid", "check the argument"),
            Code(
                107003,
                "STREAM_CONTEXT",
                "the stream belongs to another device",
                "use a stream of this runtime's device",
            ),
            Code(107017, "INVALID_HANDLE", "the object was destroyed, or holds nothing yet", "capture a new graph"),
            Code(
                107024,
                "CAPTURE_DEPENDENCY",
                "a capturing stream waits for an event that was not captured",
                "record the event inside the same capture",
            ),
            Code(
                107025,
                "STREAM_UNJOINED",
                "a stream that joined the capture was not joined back",
                "record an event on it and wait for that on the origin stream before the end",
            ),
            Code(107026, "MODEL_CAPTURED", "the stream is being captured", "replay after the capture's end"),
            Code(107027, "STREAM_CAPTURED", "the stream is being captured", "do this outside the capture"),
            Code(107028, "EVENT_CAPTURED", "a capture is going on on this device", "do this outside the capture"),
            Code(107029, "STREAM_NOT_CAPTURED", "the stream is not being captured", "begin a capture first"),
            Code(107030, "CAPTURE_MODE_NOT_SUPPORT", "the capture's mode bars the call", "do this outside the capture"),
            Code(
                107031,
                "STREAM_CAPTURE_IMPLICIT",
                "the default stream cannot be captured",
                "make a stream and enter it before the capture",
            ),
            Code(
                107032,
                "STREAM_CAPTURE_CONFLICT",
                "the event and the stream belong to different captures",
                "keep each event inside one capture",
            ),
            Code(
                107033,
                "STREAM_TASK_GROUP_STATUS",
                "task group or update calls are out of order",
                "pair every begin with one end on the same stream",
            ),
            Code(
                107034,
                "STREAM_TASK_GROUP_INTR",
                "a launch on another stream of the capture interrupts the open task group",
                "launch nothing on other captured streams while a group is open",
            ),
            Code(
                107036,
                "STREAM_CAPTURE_UNMATCHED",
                "the capture did not begin on this stream",
                "end the capture on the stream where it began",
            ),
            Code(107037, "MODEL_RUNNING", "the graph is still running", "synchronize before you destroy it"),
            Code(
                107038,
                "STREAM_CAPTURE_WRONG_THREAD",
                "the capture was begun by another thread",
                'end it there, or capture with capture_error_mode="relaxed"',
            ),
            Code(
                107040,
                "MODEL_UPDATE_FAILED",
                "the replacement does not fit the group",
                "launch the same operators, in the same order, as at capture",
            ),
            Code(207007, "NO_EVENT_RESOURCE", "events have run out", "close graphs that are not used any more"),
            Code(207008, "NO_STREAM_RESOURCE", "streams have run out", "close graphs that are not used any more"),
            Code(
                507009,
                "TASK_TYPE_NOT_SUPPORT",
                "a task group holds operators only",
                "wait for and record events outside the group",
            ),
            Code(
                507015,
                "AICORE_EXCEPTION",
                "an operator failed on the device",
                "keep captured tensors alive and in place, and values in range",
            ),
            Code(
                507046,
                "STREAM_SYNC_TIMEOUT",
                "the stream waits for something that nobody signals",
                "record the event, once for each replay",
            ),
            Code(
                507903,
                "STREAM_CAPTURE_INVALIDATED",
                "something illegal happened during the capture",
                "correct that and capture again",
            ),
        )
    }
)


def device_error(code: int, doing: str, problem: str = "") -> DeviceError:
    """Return the error for `code`; `problem` says what was found here, else the code's usual cause is given."""
    known = CODES[code]
    return DeviceError(code=code, doing=doing, problem=f"{problem or known.cause} ({known.name}); {known.remedy}")
