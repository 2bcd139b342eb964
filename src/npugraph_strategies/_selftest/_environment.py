"""What a report says about the machine that it is from."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
from datetime import datetime, timezone
from importlib import metadata
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from npugraph_strategies._selftest._lab import Lab

__all__ = ["environment"]

_SETTINGS = ("TASK_QUEUE_ENABLE", "ASCEND_LAUNCH_BLOCKING")


def environment(lab: Lab) -> dict[str, str | None]:
    """Return the facts of this machine by name, None for what cannot be told. Nothing names its user or its host."""
    packages = {name: _installed(name) for name in ("npugraph-strategies", "torch", "torch-npu")}
    facts: dict[str, str | None] = {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "runtime": lab.kind,
        **packages,
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
    }
    if lab.kind == "npu":
        npu = lab.npu
        facts |= {
            "driver": _driver(),
            "CANN": _told(lambda: npu.utils.get_cann_version("CANN")),
            "driver version": _told(lambda: npu.utils.get_cann_version("DRIVER")),
            "SoC": _told(npu.get_device_name),
            "devices": _told(npu.device_count),
            **{name: os.environ.get(name) for name in _SETTINGS},
        }
    return facts


def _installed(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _told(ask: Callable[[], Any]) -> str | None:
    """Return an answer of torch_npu as text; not every version can give every one."""
    with contextlib.suppress(Exception):
        return str(ask()) or None
    return None


def _driver() -> str:
    """Tell a real driver from the simulated one, which exports functions of its own."""
    try:
        library = ctypes.CDLL("libascendcl.so")
    except OSError:
        return "unknown"
    return "CANN simulator" if hasattr(library, "npusim_count") else "CANN"
