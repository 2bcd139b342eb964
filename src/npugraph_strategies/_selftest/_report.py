"""A report: what ran where, as a file, and what differs between two of them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, final

import attrs

from npugraph_strategies._selftest._probe import Step
from npugraph_strategies._selftest._results import AGREES, DIFFERS, NOT_OBSERVABLE, Result

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["Difference", "Report", "UnreadableReport", "differences"]

FORMAT: Final = "npugraph-strategies selftest"
VERSION: Final = 1

_VERDICTS: Final = (AGREES, DIFFERS, NOT_OBSERVABLE)


class UnreadableReport(ValueError):
    """A file is no report of this format."""


@final
@attrs.frozen
class Report:
    """The environment of a run, and its results."""

    environment: Mapping[str, str | None]
    results: tuple[Result, ...]

    @property
    def summary(self) -> dict[str, int]:
        """Return how many results have each verdict."""
        return {verdict: sum(one.verdict == verdict for one in self.results) for verdict in _VERDICTS}

    def to_json(self) -> str:
        """Return the text of a file."""
        whole = {
            "format": FORMAT,
            "format_version": VERSION,
            "environment": self.environment,
            "summary": self.summary,
            "results": [attrs.asdict(result) for result in self.results],
        }
        return json.dumps(whole, indent=2)

    @classmethod
    def read(cls, path: Path) -> Report:
        """Read a file.

        Raises:
            UnreadableReport: It cannot be read, or is something else.

        """
        try:
            whole = json.loads(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UnreadableReport(f"{path} cannot be read: {error.strerror}") from None
        except ValueError:
            raise UnreadableReport(f"{path} is not JSON; expected a file that selftest --output wrote") from None
        if not isinstance(whole, dict) or whole.get("format") != FORMAT:
            raise UnreadableReport(f"{path} is no report; expected a file that selftest --output wrote")
        if whole.get("format_version") != VERSION:
            given = whole.get("format_version")
            raise UnreadableReport(f"{path} has format version {given!r}, expected {VERSION}; run selftest again")
        try:
            return cls(_environment(whole["environment"]), tuple(map(_result, whole["results"])))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise UnreadableReport(f"{path} is damaged: {type(error).__name__} at {error}") from None


def _environment(given: Any) -> dict[str, str | None]:
    return {str(name): None if value is None else str(value) for name, value in given.items()}


def _result(given: Mapping[str, Any]) -> Result:
    if given["verdict"] not in _VERDICTS:
        raise ValueError(f"verdict {given['verdict']!r}")
    return Result(**{**given, "steps": tuple(Step(**step) for step in given["steps"])})


@final
@attrs.frozen
class Difference:
    """What two reports say about one step of a probe; None where one of them has nothing."""

    probe: str
    what: str
    first: str | None
    second: str | None


def differences(first: Report, second: Report) -> tuple[Difference, ...]:
    """Return the steps that came out differently, in the order of the first report.

    Outcomes are compared, not times and not the texts of errors. A probe that one machine could not run is no
    difference in what the device does, and is left out; one that only one report knows is told as a whole.
    """
    ours, theirs = ({one.probe: one for one in report.results} for report in (first, second))
    found = []
    for name in dict.fromkeys([*ours, *theirs]):
        one, other = ours.get(name), theirs.get(name)
        if one is None or other is None:
            known = (None if one is None else one.verdict, None if other is None else other.verdict)
            found.append(Difference(name, "the probe", *known))
        elif NOT_OBSERVABLE not in {one.verdict, other.verdict}:
            found += _between(one, other)
    return tuple(found)


def _between(one: Result, other: Result) -> list[Difference]:
    mine, its = one.observed, other.observed
    steps = dict.fromkeys([*mine, *its])
    return [
        Difference(one.probe, what, mine.get(what), its.get(what)) for what in steps if mine.get(what) != its.get(what)
    ]
