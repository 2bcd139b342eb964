"""The command ``selftest``: what a device does, against what is known about devices, and against another machine."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import attrs
import click
from rich.console import Console
from rich.markup import escape
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text

from npugraph_strategies._selftest._catalogue import PROBES
from npugraph_strategies._selftest._lab import LABS
from npugraph_strategies._selftest._report import Difference, Report, UnreadableReport, differences
from npugraph_strategies._selftest._results import AGREES, DIFFERS, NOT_OBSERVABLE
from npugraph_strategies._selftest._runner import run
from npugraph_strategies.errors import RuntimeUnavailable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from npugraph_strategies._selftest._probe import Probe
    from npugraph_strategies._selftest._results import Result

__all__ = ["command"]

_DIFFERENT: Final = 1
_STYLES: Final = {AGREES: "green", DIFFERS: "bold red", NOT_OBSERVABLE: "dim"}


class _Refused(click.ClickException):
    """The device is not available, or a file is no report: one line, no traceback."""

    exit_code = 2


@click.command(name="selftest")
@click.option("--runtime", type=click.Choice(LABS), default=LABS[0], show_default=True, help="The device.")
@click.option(
    "--probe", "names", multiple=True, metavar="NAME", help="Run this probe or this subject only; repeatable."
)
@click.option(
    "--hazardous",
    is_flag=True,
    help="Run probes too that make the device wait for ever, or take all its streams and events. Use a device that "
    "nobody else uses.",
)
@click.option(
    "--time-limit",
    type=click.FloatRange(min=1),
    default=60.0,
    show_default=True,
    help="Seconds after which a probe on an NPU counts as hanging, and its process is ended.",
)
@click.option("--json", "as_json", is_flag=True, help="Write JSON instead of tables.")
@click.option(
    "--output", type=click.Path(dir_okay=False, path_type=Path), help="Write the report to this file, as JSON."
)
@click.option(
    "--compare",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Show only what differs from this report. Given twice, compare the two files, and run nothing.",
)
def command(
    *,
    runtime: str,
    names: tuple[str, ...],
    hazardous: bool,
    time_limit: float,
    as_json: bool,
    output: Path | None,
    compare: tuple[Path, ...],
) -> None:
    """Observe the device's rules one by one, and compare them with what is known.

    Each probe does what one rule speaks about, captures that must fail included, and writes down what happens. On an
    NPU probes run in processes of their own: one that hangs or dies is a finding, and the rest go on. The report names
    versions, chip and settings, and no users or hosts.

    Exits with 0 when all agree (with --compare: when nothing differs between the reports), with 1 when some differ,
    with 2 for wrong usage, no device, or a file that is no report.
    """
    if len(compare) > 2:  # noqa: PLR2004 - a comparison has two sides
        raise click.UsageError("--compare takes one report, or two to compare with each other")
    try:
        earlier = [Report.read(path) for path in compare]
        if len(earlier) == 2:  # noqa: PLR2004 - as above
            if output is not None:
                raise click.UsageError("--output is for a run; two reports are compared without one")
            first, second = earlier
            labels = tuple(map(str, compare))
        else:
            second = _run(runtime, _selected(names), hazardous=hazardous, seconds=time_limit, shown=not as_json)
            if output is not None:
                _write(output, second)
            if not earlier:
                _show(second, as_json=as_json)
                sys.exit(_DIFFERENT if second.summary[DIFFERS] else 0)
            first = _of_the_same_probes(earlier[0], second) if names else earlier[0]
            labels = (str(compare[0]), "this run")
    except (UnreadableReport, RuntimeUnavailable) as error:
        raise _Refused(" ".join(str(error).split())) from error
    found = differences(first, second)
    _show_differences(found, first, second, labels, as_json=as_json)
    sys.exit(_DIFFERENT if found else 0)


def _selected(names: Sequence[str]) -> tuple[Probe, ...]:
    """Return the probes that are named, by their own names or by their subject's."""
    unknown = [name for name in names if not any(name in {one.name, one.subject} for one in PROBES)]
    if unknown:
        subjects = ", ".join(dict.fromkeys(probe.subject for probe in PROBES))
        raise click.BadParameter(f"there is no probe {unknown[0]!r}; subjects are {subjects}", param_hint="--probe")
    return tuple(probe for probe in PROBES if not names or {probe.name, probe.subject} & set(names))


def _run(runtime: str, probes: Sequence[Probe], *, hazardous: bool, seconds: float, shown: bool) -> Report:
    """Run, and say on standard error, if that is a terminal, what has been done."""
    console = Console(stderr=True)
    hidden = not (shown and console.is_terminal)
    with Progress(TextColumn("{task.description}"), console=console, transient=True, disable=hidden) as progress:
        task = progress.add_task("opening the device")

        def watch(result: Result) -> None:
            progress.update(task, description=f"after {result.probe}: {result.verdict}")

        return Report(*run(runtime, probes=probes, hazardous=hazardous, seconds=seconds, watch=watch))


def _write(path: Path, report: Report) -> None:
    try:
        path.write_text(report.to_json() + "\n", encoding="utf-8")
    except OSError as error:
        raise _Refused(f"{path} cannot be written: {error.strerror}") from error


def _of_the_same_probes(report: Report, other: Report) -> Report:
    """Return a report of the probes that the other one has too."""
    names = {result.probe for result in other.results}
    return attrs.evolve(report, results=tuple(result for result in report.results if result.probe in names))


def _show(report: Report, *, as_json: bool) -> None:
    """Write a report to standard output."""
    if as_json:
        click.echo(report.to_json())
        return
    console = Console(highlight=False)
    table = Table("probe", "rule", "observed", "expected", "verdict", title="What the device does")
    subject = None
    for result in report.results:
        if subject not in {None, result.subject}:
            table.add_section()
        subject = result.subject
        verdict = Text(result.verdict, style=_STYLES[result.verdict])
        table.add_row(result.probe, Text(result.rule), _observed(result), _expected(result), verdict)
    console.print(table)
    facts = ", ".join(f"{name} {value}" for name, value in report.environment.items() if value is not None)
    console.print(Text(facts), soft_wrap=True)
    console.print(_verdict(report), soft_wrap=True)  # one line, to be found by scripts too


def _observed(result: Result) -> Text:
    """Return the steps, one on each line; what the rule does not allow is marked."""
    lines = [
        Text(f"{step.what}: {step.outcome}", style="" if result.meets(step.what) else "red") for step in result.steps
    ]
    said = next((step.text for step in result.steps if step.text and not result.meets(step.what)), None)
    lines += [Text(text, style="dim") for text in (result.reason, said) if text]
    return Text("\n").join(lines)


def _expected(result: Result) -> Text:
    return Text("\n".join(f"{what}: {' or '.join(outcomes)}" for what, outcomes in result.expected.items()))


def _verdict(report: Report) -> Text:
    counts = ", ".join(f"{count} {verdict}" for verdict, count in report.summary.items())
    if report.summary[DIFFERS]:
        return Text(f"DIFFERENT: {counts}", style="bold red")
    return Text(f"AS EXPECTED: {counts}", style="bold green")


def _show_differences(
    found: Sequence[Difference], first: Report, second: Report, labels: Sequence[str], *, as_json: bool
) -> None:
    """Write what differs between two reports, and between the machines that they are from."""
    settings = {
        name: (first.environment.get(name), second.environment.get(name))
        for name in dict.fromkeys([*first.environment, *second.environment])
        if name != "date" and first.environment.get(name) != second.environment.get(name)
    }
    if as_json:
        whole: dict[str, Any] = {"environment": settings, "differences": [attrs.asdict(one) for one in found]}
        click.echo(json.dumps(whole, indent=2))
        return
    console = Console(highlight=False)
    _table(console, "Where the reports are from", "fact", labels, [(name, *both) for name, both in settings.items()])
    rows = [(f"{one.probe}: {one.what}", one.first, one.second) for one in found]
    _table(console, "What the devices do differently", "probe", labels, rows)
    text = f"DIFFERENT: {len(found)} outcome(s) differ" if found else "THE SAME: no outcome differs"
    console.print(Text(text, style="bold red" if found else "bold green"), soft_wrap=True)


def _table(
    console: Console, title: str, head: str, labels: Sequence[str], rows: Sequence[tuple[str, str | None, str | None]]
) -> None:
    if not rows:
        return
    table = Table(head, *map(escape, labels), title=title)
    for name, *both in rows:
        table.add_row(Text(name), *(Text("-" if value is None else value) for value in both))
    console.print(table)
