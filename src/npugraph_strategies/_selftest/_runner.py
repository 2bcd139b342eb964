"""Runs probes: here, one after the other, or in processes of their own that may hang or die."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from npugraph_strategies._selftest._apart import run_apart
from npugraph_strategies._selftest._catalogue import PROBES
from npugraph_strategies._selftest._environment import environment
from npugraph_strategies._selftest._graphs import add, capturing, replayed, values
from npugraph_strategies._selftest._lab import open_lab
from npugraph_strategies._selftest._probe import Notes, Step
from npugraph_strategies._selftest._results import Result, finished, not_run

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from npugraph_strategies._selftest._lab import Lab
    from npugraph_strategies._selftest._probe import Listener, Probe

__all__ = ["damage", "run", "run_probe"]


def run(
    kind: str,
    *,
    probes: Sequence[Probe] = PROBES,
    hazardous: bool = False,
    seconds: float = 60.0,
    watch: Callable[[Result], object] = lambda _: None,
) -> tuple[Mapping[str, str | None], tuple[Result, ...]]:
    """Run what can be run on a kind of runtime; return the environment, and a result for each probe, in order.

    `seconds` is how long a probe on an NPU may take before it counts as hanging. `watch` sees each result at once.

    Raises:
        RuntimeUnavailable: There is no such device here.

    """
    reasons = {probe.name: _reason(probe, kind, hazardous=hazardous) for probe in probes}
    able = [probe for probe in probes if reasons[probe.name] is None]
    left_out = [not_run(probe, reason) for probe in probes if (reason := reasons[probe.name]) is not None]
    if kind == "npu":
        found, running = run_apart(kind, able, seconds=seconds)
    else:
        found, running = environment(open_lab(kind)), _run_here(kind, able)
    results: dict[str, Result] = {}
    for result in itertools.chain(left_out, running):
        results[result.probe] = result
        watch(result)
    return found, tuple(results[probe.name] for probe in probes)


def _reason(probe: Probe, kind: str, *, hazardous: bool) -> str | None:
    """Return why a probe is not run, or None."""
    if probe.only not in {None, kind}:
        return f"not applicable: needs the runtime {probe.only}"
    if probe.hazardous and not hazardous:
        return "hazardous: runs with --hazardous only"
    return None


def _run_here(kind: str, probes: Sequence[Probe]) -> Iterator[Result]:
    """Run each probe on a device of its own."""
    for probe in probes:
        yield run_probe(probe, open_lab(kind))


def run_probe(probe: Probe, lab: Lab, listener: Listener | None = None) -> Result:
    """Run one probe; what it did not expect to be raised is a step too, so that the others go on."""
    notes, reason = Notes(listener), None
    start = time.perf_counter()
    try:
        probe.run(lab, notes)
    except Exception as error:  # noqa: BLE001 - see the docstring
        step = Step.failed("the probe itself", error)
        notes.add(step)
        reason = f"the probe stopped: {step.outcome}"
    return finished(probe, notes.steps, time.perf_counter() - start, reason)


def damage(lab: Lab) -> str | None:
    """Return what a probe has broken for those that follow, or None: a plain capture and replay still work."""
    try:
        x, y, out = lab.tensor(1.0), lab.tensor(2.0), lab.tensor(-1.0)
        with capturing(lab) as capture:
            add(x, y, out)
            capture.end()
        replayed(lab, capture.graph)
        found = values(out)
    except Exception as error:  # noqa: BLE001 - whatever it is, this device is of no more use
        step = Step.failed("a plain capture", error)
        return f"{step.outcome}: {step.text}"
    return None if found == "[3.0]" else f"a plain capture of 1 + 2 gives {found}"
