"""Runs probes in processes of their own: one that hangs or dies is a finding, and the rest go on in a new process.

The processes are needed on a device only: what is stuck there ends with the process that did it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from npugraph_strategies._selftest._probe import Step
from npugraph_strategies._selftest._results import finished, not_run
from npugraph_strategies.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npugraph_strategies._selftest._probe import Probe
    from npugraph_strategies._selftest._results import Result

__all__ = ["Silent", "Worker", "run_apart"]

_STARTING: Final = 300.0  # seconds: loading torch_npu and opening a device takes long on a busy machine
_ENDING: Final = 10.0
_SHOWN: Final = 200

Message = dict[str, Any]


@attrs.frozen
class Silent(Exception):
    """The process says nothing more; `why` is in words for a report."""

    outcome: str
    why: str


@final
class Worker:
    """A process that runs probes and tells about it."""

    def __init__(self, kind: str, names: Sequence[str]) -> None:
        reading, writing = os.pipe()
        command = [sys.executable, "-m", "npugraph_strategies._selftest._worker", str(writing), kind, *names]
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the worker
        self._process = subprocess.Popen(  # noqa: S603 - our own module
            command, pass_fds=[writing], stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors
        )
        os.close(writing)
        self._stuck = False
        self._lines: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reader = threading.Thread(target=self._read, args=[reading], daemon=True)
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, encoding="utf-8") as file:
            for line in file:
                self._lines.put(line)
        self._lines.put(None)

    def hear(self, seconds: float) -> Message:
        """Return the next message; raises `Silent` when there is none in time, or none ever."""
        try:
            line = self._lines.get(timeout=seconds)
        except queue.Empty:
            self._stuck = True
            raise Silent("no answer", f"no answer in {seconds:g} s") from None
        if line is None:
            code = self._process.wait()
            how = f"died: {signal.Signals(-code).name}" if code < 0 else f"died: exit code {code}"
            raise Silent(how, f"the process {how}; it said last: {self._said()}")
        message: Message = json.loads(line)
        return message

    def _said(self) -> str:
        """Return the last lines that the process wrote: torch_npu puts a line of its own after an exception's."""
        self._errors.seek(0)
        text = self._errors.read().decode(errors="replace").replace(str(Path.home()), "~")
        lines = [line.strip()[:_SHOWN] for line in text.splitlines() if line.strip()]
        return " | ".join(lines[-2:]) or "nothing"

    def close(self) -> None:
        """Let the process put its device in order and end; end it if it is stuck, or takes too long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self._stuck else _ENDING)
        self._process.kill()
        self._process.wait()
        self._reader.join()
        self._errors.close()


def run_apart(
    kind: str,
    probes: Sequence[Probe],
    *,
    seconds: float,
    start: Callable[[str, Sequence[str]], Worker] = Worker,
) -> tuple[Mapping[str, str | None], Iterator[Result]]:
    """Return the environment of the first process, and the results as they come.

    Raises:
        RuntimeUnavailable: No process can open the device.

    """
    running = _Series(kind, seconds, start)
    worker = running.open(probes)
    return running.environment, running.results(probes, worker)


@final
@attrs.define(eq=False)
class _Series:
    """One process after the other."""

    kind: str
    seconds: float
    start: Callable[[str, Sequence[str]], Worker]
    environment: Mapping[str, str | None] = attrs.field(factory=dict)

    def open(self, probes: Sequence[Probe]) -> Worker:
        """Start a process for the next probes; raises `RuntimeUnavailable`."""
        worker = self.start(self.kind, [probe.name for probe in _batch(probes)])
        try:
            message = worker.hear(_STARTING)
        except Silent as silent:
            worker.close()
            raise RuntimeUnavailable("the self-test", silent.why) from None
        if message["kind"] == "unavailable":
            worker.close()
            raise RuntimeUnavailable("the self-test", message["reason"])
        self.environment = self.environment or message["environment"]
        return worker

    def results(self, probes: Sequence[Probe], worker: Worker) -> Iterator[Result]:
        """Run all probes, in as many processes as it takes; the first is open already."""
        left = list(probes)
        while True:
            for result in self._until_broken(_batch(left), worker):
                left.pop(0)
                yield result
            if not left:
                return
            try:
                worker = self.open(left)
            except RuntimeUnavailable as error:
                yield from (not_run(probe, f"the device cannot be opened any more: {error.reason}") for probe in left)
                return

    def _until_broken(self, probes: Sequence[Probe], worker: Worker) -> Iterator[Result]:
        """Run probes in one process, until it is of no more use."""
        with contextlib.closing(worker):
            for probe in probes:
                try:
                    message = worker.hear(self.seconds)  # of the device's state after the last probe
                except Silent as silent:
                    if probe is probes[0]:  # a new process would do the same
                        yield finished(probe, [Step("the probe itself", silent.outcome)], 0.0, silent.why)
                    return
                if message["kind"] == "broken":
                    return
                result = self._one(probe, worker)
                yield result
                if not _came_to_its_end(result):
                    return

    def _one(self, probe: Probe, worker: Worker) -> Result:
        """Follow one probe to its end, or to the call that did not return."""
        steps: list[Step] = []
        calling, begun = "the probe itself", time.monotonic()
        while True:
            try:
                message = worker.hear(max(0.0, begun + self.seconds - time.monotonic()))
            except Silent as silent:
                steps.append(Step(calling, silent.outcome))
                return finished(probe, steps, time.monotonic() - begun, silent.why)
            if message["kind"] == "calling":
                calling = message["what"]
            elif message["kind"] == "step":
                steps.append(Step(**message["step"]))
                calling = "the probe itself"
            else:
                return finished(probe, steps, message["seconds"], message["reason"])


def _came_to_its_end(result: Result) -> bool:
    last = result.steps[-1].outcome if result.steps else ""
    return last != "no answer" and not last.startswith("died")


def _batch(probes: Sequence[Probe]) -> list[Probe]:
    """Return the probes for one process: a hazardous one has it for itself."""
    if probes and probes[0].hazardous:
        return [probes[0]]
    return list(itertools.takewhile(lambda probe: not probe.hazardous, probes))
