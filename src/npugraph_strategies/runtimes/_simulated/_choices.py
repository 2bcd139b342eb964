"""What is not documented about the device, and what the simulated one does: one table."""

from __future__ import annotations

import attrs

__all__ = ["Choices"]


@attrs.frozen(kw_only=True)
class Choices:
    """Behaviour of a simulated device where CANN's documentation is silent; change a field to try another answer.

    >>> Choices().wait_consumes
    True
    """

    wait_consumes: bool = True
    """A wait clears its event, and `reset` does nothing (torch_npu 2.13). False: wait keeps it, `reset` clears it."""

    sync_stream_code: int = 107027
    """Synchronising with a capturing stream. The capture is invalidated."""

    sync_device_code: int = 107028
    """Synchronising with a device on which any capture is going on. Every such capture is invalidated."""

    update_mismatch_code: int = 107040
    """At the end of an update whose operators differ from the group's in name or number. Nothing is patched."""

    operator_failed_code: int = 507015
    """An operator raises during a replay, or captured memory is gone or moved. The replay is dropped, no more."""

    spent_graph_code: int = 107017
    """Replay of a graph that holds no capture; update of a group whose graph was reset."""

    recapture_code: int = 107027
    """A second capture into a graph that has captured already."""

    foreign_event_code: int = 107024
    """Outside a capture: waiting for an ordinary event that was recorded inside one."""

    refusal_invalidates: bool = True
    """An operator that cannot be captured invalidates the capture, as the host synchronisation it stands for would."""

    runs_at_capture: tuple[str, ...] = ("_get_max_workspace", "_get_workspace", "_infer_output")
    """Operators with one of these in their qualified name return real sizes: they run at capture, and at update."""

    hang_patience: float = 0.0
    """Seconds that `synchronize` gives other threads to signal what a stuck stream waits for, before it is a hang."""

    most_lazy_steps: int = 3
    """A lazy device does at most this many steps at each primitive."""
