"""Read CANN's error codes out of the RuntimeErrors of torch_npu.

torch_npu raises RuntimeError for everything and leaves the code in the text ("... error code is 207008"), among time
stamps, process ids and advice. What a code means and what to do about it stands in the table that the simulated device
raises from, so that both devices speak alike.
"""

from __future__ import annotations

import re
from typing import Final

import torch

from npugraph_strategies.errors import DeviceError, DeviceHang, ResourceExhausted
from npugraph_strategies.runtimes._codes import CODES

__all__ = ["classify"]

_EXHAUSTED: Final = frozenset({207005, 207007, 207008})
_HANG: Final = 507046
# What torch_npu refuses by itself, before it asks the driver, as the code that the driver has for it.
_REFUSED_BEFORE: Final = (
    ("without a preceding successful capture", 107017),
    ("already owns a captured graph", 107027),
    ("must be captured on a non-default stream", 107031),
    ("must end on the same stream it began on", 107036),
)
# Wording of the driver for "no more streams"; it may come with no code at all.
_NO_MORE_STREAMS: Final = re.compile(r"alloc sq cq fail", re.IGNORECASE)
_SAID: Final = re.compile(r"error ?code(?:\s+is)?\s*[:=]?\s*(\d{6})(?!\d)", re.IGNORECASE)
# Without those words only the runtime's own ranges count, and never "PID:107027" or a part of a longer number.
_BARE: Final = re.compile(r"(?<![\w.:-])(107\d{3}|207\d{3}|507\d{3})(?![\w.])")


def classify(error: BaseException, *, doing: str = "a device call") -> DeviceError | None:
    """Return the `DeviceError` that says what `error` means, or None if it is not the device speaking.

    The original text stays in `problem`, after cause, CANN's name and remedy where the code is known. A `DeviceError`
    is returned as it is. Out-of-memory errors of the allocator are not classified: callers catch torch's own class.

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
    refused = next((code for words, code in _REFUSED_BEFORE if words in text), None)
    if found is not None:
        code = int(found[1])
    elif out_of_streams:
        code = 207005
    elif refused is not None:
        code = refused
    else:
        return None
    known = CODES.get(code)
    problem = text if known is None else f"{known.cause} ({known.name}); {known.remedy}. The device said: {text}"
    if out_of_streams or code in _EXHAUSTED:
        return ResourceExhausted(code, doing, problem)
    if code == _HANG:
        return DeviceHang(code, doing, problem)
    return DeviceError(code, doing, problem)
