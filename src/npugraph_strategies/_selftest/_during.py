"""Probes of what is illegal while a capture goes on, in every mode or in some."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

from npugraph_strategies._selftest._graphs import capturing
from npugraph_strategies._selftest._lab import elsewhere
from npugraph_strategies._selftest._probe import probe

if TYPE_CHECKING:
    from collections.abc import Callable

    from npugraph_strategies._selftest._graphs import Capture
    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies._selftest._probe import Notes, Probe

__all__ = ["PROBES"]

_SYNCHRONISES: Final = "107027 | 107028"  # which one is not documented


def _illegal(name: str, what: str, act: Callable[[Lab, Capture, Any], object], **options: Any) -> Probe:
    """Return the probe of a call that breaks a capture of any mode."""

    def run(lab: Lab, notes: Notes) -> None:
        x = lab.tensor(1.0)
        with capturing(lab, "relaxed") as capture:
            notes.call("call", act, lab, capture, x)
            notes.call("end", capture.end)

    outcome = options.pop("outcome", _SYNCHRONISES)
    rule = f"{what} during a capture is illegal in every mode, and the capture fails"
    return probe(f"during.{name}", rule, {"call": outcome, "end": "507903"}, **options)(run)


def _recorded(lab: Lab, capture: Capture) -> Any:
    mark = lab.mark()
    mark.record(capture.stream)
    lab.settle(capture.stream)  # a record that is still queued belongs to no capture yet
    return mark


_SYNCHRONISE_STREAM: Final = _illegal(
    "synchronise-stream",
    "Synchronising with the stream",
    lambda lab, capture, _: lab.runtime.synchronize(capture.stream),
)
_SYNCHRONISE_DEVICE: Final = _illegal(
    "synchronise-device", "Synchronising with the device", lambda lab, _, __: lab.runtime.synchronize()
)
_SYNCHRONISE_EVENT: Final = _illegal(
    "synchronise-event",
    "Synchronising with an event that it recorded",
    lambda lab, capture, _: _recorded(lab, capture).synchronize(),
    only="npu",
)
_QUERY_STREAM: Final = _illegal(
    "query-stream",
    "Querying the stream",
    lambda _, capture, __: cast("Any", capture.stream).query(),
    only="npu",
)
_QUERY_EVENT: Final = _illegal(
    "query-event",
    "Querying an event that it recorded",
    lambda lab, capture, _: _recorded(lab, capture).query(),
    only="npu",
)
_READ: Final = _illegal(
    "read",
    "Reading on the host what it computes",
    lambda _, __, x: (x + x).tolist(),
    outcome="107027 | 107028 | 107030 | 107041 | NotCapturable",
)


def _unsafe(mode: str, *, here: str, there: str) -> Probe:
    """Return the probe of a copy from pageable memory, on a stream that does not capture, in two threads."""

    def attempt(lab: Lab, notes: Notes, *, thread: bool) -> None:
        host, target, stream = lab.tensor(1.0).cpu(), lab.tensor(0.0), lab.runtime.new_stream()

        def copy() -> None:
            with lab.runtime.stream(stream):
                target.copy_(host)

        where = "in another thread" if thread else "in the capturing thread"
        with capturing(lab, mode) as capture:
            notes.call(f"copy {where}", elsewhere if thread else _here, copy)
            notes.call(f"end after the copy {where}", capture.end)

    def run(lab: Lab, notes: Notes) -> None:
        attempt(lab, notes, thread=False)
        attempt(lab, notes, thread=True)

    barred = {"ok": ("ok", "ok"), "barred": ("107030 | 107041", "507903")}
    expected = {
        "copy in the capturing thread": barred[here][0],
        "end after the copy in the capturing thread": barred[here][1],
        "copy in another thread": barred[there][0],
        "end after the copy in another thread": barred[there][1],
    }
    bars = {
        "global": "in every thread, and a violation fails the capture",
        "thread_local": "in the capturing thread, and a violation fails the capture",
        "relaxed": "nowhere",
    }
    rule = f"Mode {mode} bars unsafe calls {bars[mode]}"
    return probe(f"during.unsafe-{mode.replace('_', '-')}", rule, expected, only="npu")(run)


def _here(fn: Callable[[], object]) -> object:
    return fn()


PROBES: Final = (
    _SYNCHRONISE_STREAM,
    _SYNCHRONISE_DEVICE,
    _SYNCHRONISE_EVENT,
    _QUERY_STREAM,
    _QUERY_EVENT,
    _READ,
    _unsafe("global", here="barred", there="barred"),
    _unsafe("thread_local", here="barred", there="ok"),
    _unsafe("relaxed", here="ok", there="ok"),
)
