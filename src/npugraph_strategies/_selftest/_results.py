"""What came of a probe, and whether that agrees with the rule."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, final

import attrs

from npugraph_strategies._selftest._probe import ANY_ERROR, Step

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from npugraph_strategies._selftest._probe import Probe

__all__ = ["AGREES", "DIFFERS", "NOT_OBSERVABLE", "Result", "finished", "not_run"]

AGREES: Final = "agrees"
DIFFERS: Final = "differs"
NOT_OBSERVABLE: Final = "not observable"


@final
@attrs.frozen(kw_only=True)
class Result:
    """A probe's steps with the verdict on them; `reason` says why it did not run, or did not come to its end."""

    probe: str
    rule: str
    verdict: str
    reason: str | None = None
    seconds: float = 0.0
    expected: Mapping[str, Sequence[str]]
    steps: tuple[Step, ...] = ()

    @property
    def subject(self) -> str:
        """Return the first part of the probe's name."""
        return self.probe.partition(".")[0]

    @property
    def observed(self) -> dict[str, str]:
        """Return the outcome of each step."""
        return {step.what: step.outcome for step in self.steps}

    def meets(self, what: str) -> bool:
        """Tell whether a step came out as the rule says; one that is not documented does, one that is missing not."""
        allowed = self.expected.get(what)
        if allowed is None:
            return True
        step = next((step for step in self.steps if step.what == what), None)
        return step is not None and (step.outcome in allowed or (ANY_ERROR in allowed and step.error is not None))


def finished(probe: Probe, steps: Sequence[Step], seconds: float, reason: str | None = None) -> Result:
    """Judge what a probe did."""
    result = Result(
        probe=probe.name,
        rule=probe.rule,
        verdict=AGREES,
        reason=reason,
        seconds=round(seconds, 4),
        expected=dict(probe.expected),
        steps=tuple(steps),
    )
    met = all(map(result.meets, probe.expected))
    return result if met else attrs.evolve(result, verdict=DIFFERS)


def not_run(probe: Probe, reason: str) -> Result:
    """Return the result of a probe that was not run."""
    return Result(
        probe=probe.name, rule=probe.rule, verdict=NOT_OBSERVABLE, reason=reason, expected=dict(probe.expected)
    )
