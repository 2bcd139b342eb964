"""What the demo shows: progress, tables and a verdict for people, one object for scripts."""

from __future__ import annotations

import contextlib
import json
import math
import platform
from importlib import metadata
from typing import TYPE_CHECKING, final

import attrs
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from npugraph_strategies.cli._prompts import printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from npugraph_strategies.cli._decoding import Decoded, Step

__all__ = ["Settings", "as_json", "progress", "render"]


@final
@attrs.frozen(kw_only=True)
class Settings:
    """What the demo was asked to do."""

    layers: int
    batch: int
    seed: int
    order: str
    runtime: str
    lazy: bool
    tolerance: float


@contextlib.contextmanager
def progress(steps: int, *, shown: bool) -> Iterator[Callable[[Step], None]]:
    """Show a bar on standard error while the block runs, if that is a terminal; yield what advances it."""
    console = Console(stderr=True)
    columns = (TextColumn("decoding"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.description}"))
    bar = Progress(*columns, TimeElapsedColumn(), console=console, transient=True, disable=not shown)
    with bar:
        task = bar.add_task("", total=steps)

        def advance(step: Step) -> None:
            state = "equal" if step.matches else "[red]different"
            bar.update(task, advance=1, description=f"lengths to {max(step.lengths)}, {state}")

        yield advance


def as_json(result: Decoded, prompts: Sequence[str], settings: Settings) -> str:
    """Return the result as JSON; a difference that is not finite becomes null."""
    report = {
        "mismatches": result.mismatches,
        "records": len(result.records),
        "updates": result.updates,
        "replays": result.replays,
        "steps": len(result.steps),
        "largest_difference": _finite(result.largest_difference),
        **attrs.asdict(settings),
        "labels": result.records,
        "primitives": result.primitives,
        "sequences": [
            {"prompt": prompt, "tokens": tokens, "text": printable(tokens)}
            for prompt, tokens in zip(prompts, result.continuations, strict=True)
        ],
        "decoded": [
            {
                "lengths": step.lengths,
                "tokens": step.tokens,
                "eager_tokens": step.eager_tokens,
                "difference": _finite(step.difference),
                "matches": step.matches,
            }
            for step in result.steps
        ],
        "versions": _versions(),
    }
    return json.dumps(report, indent=2, allow_nan=False)


def _finite(difference: float) -> float | None:
    return difference if math.isfinite(difference) else None


def _versions() -> dict[str, str | None]:
    """Return what is installed, None for what is not."""
    packages = ("npugraph-strategies", "torch", "torch-npu")
    return {"python": platform.python_version(), **{package: _version(package) for package in packages}}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def render(result: Decoded, prompts: Sequence[str], settings: Settings) -> None:
    """Write the tables and the verdict to standard output."""
    console = Console(highlight=False)
    for table in (_steps(result), _sequences(result, prompts), _totals(result)):
        console.print(table)
    console.print(_verdict(result, settings), soft_wrap=True)  # one line, to be found by scripts too


def _steps(result: Decoded) -> Table:
    table = Table("step", "lengths", "next tokens", "largest difference", title="Decode steps, graph against eager")
    for number, step in enumerate(result.steps, start=1):
        said = repr(printable(step.tokens))
        shown = said if step.matches else f"{said}, eager {printable(step.eager_tokens)!r}"
        table.add_row(
            str(number),
            " ".join(map(str, step.lengths)),
            Text(shown),  # not markup: tokens may be brackets
            f"{step.difference:g}",
            style=None if step.matches else "red",
        )
    return table


def _sequences(result: Decoded, prompts: Sequence[str]) -> Table:
    table = Table("prompt", "bytes", "continued by the graph", title="Sequences (the weights are random)")
    for prompt, tokens in zip(prompts, result.continuations, strict=True):
        table.add_row(Text(prompt), str(len(prompt.encode())), Text(printable(tokens)))
    return table


def _totals(result: Decoded) -> Table:
    table = Table("what", "count", title="Totals")
    table.add_row(f"records ({result.records[0]} … {result.records[-1]})", str(len(result.records)))
    table.add_row("updates of task groups", str(result.updates))
    table.add_row("replays", str(result.replays), end_section=True)
    for name, count in result.primitives.items():
        table.add_row(name, str(count))
    return table


def _verdict(result: Decoded, settings: Settings) -> Text:
    """Return the last line."""
    bound = f"largest difference {result.largest_difference:g}, tolerance {settings.tolerance:g}"
    where = f"{settings.runtime} device, {settings.order}, seed {settings.seed}"
    if result.mismatches:
        text = f"DIFFERENT: {result.mismatches} of {len(result.steps)} steps differ from eager ({bound}; {where})"
        return Text(text, style="bold red")
    return Text(f"EQUAL: all {len(result.steps)} steps equal eager ({bound}; {where})", style="bold green")
