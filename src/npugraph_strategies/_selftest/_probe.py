"""What a probe is, and what is written down while it runs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar, final

import attrs

from npugraph_strategies.runtimes._device_errors import classify

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from npugraph_strategies._selftest._lab import Lab

__all__ = ["ANY_ERROR", "OK", "Listener", "Notes", "Probe", "Step", "probe"]

T = TypeVar("T")

OK: Final = "ok"
"""The outcome of a call that returned."""
ANY_ERROR: Final = "error"
"""An expectation that every error meets: the code is not documented."""
_LONGEST: Final = 200


@final
@attrs.frozen
class Step:
    """One thing that was done or seen.

    `outcome` is ``ok``, a value, an error's code, or its class where it has no code. `error` is the class of an error
    and `text` the first line of what it said; they are for reading and are never compared.
    """

    what: str
    outcome: str
    error: str | None = None
    text: str | None = None

    @classmethod
    def failed(cls, what: str, error: Exception) -> Step:
        """Return the step that ended in an error."""
        said = error.__cause__ or error  # a runtime explains; the device's own words are behind that
        known = classify(error)
        kind = type(said).__name__
        return cls(what, kind if known is None else str(known.code), kind, _first_line(said))


def _first_line(error: BaseException) -> str:
    """Return the first line with something on it; addresses of memory differ each time and are left out."""
    line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return re.sub(r"0x[0-9a-fA-F]+", "0x…", line)[:_LONGEST]


class Listener(Protocol):
    """Told of each call before it is made, and of each step; what it was told is known even if a call never returns."""

    def calling(self, what: str) -> None:
        """Hear that a call begins."""
        ...

    def stepped(self, step: Step) -> None:
        """Hear what came of it."""
        ...


@final
@attrs.define(eq=False)
class Notes:
    """What a probe writes down."""

    listener: Listener | None = None
    steps: list[Step] = attrs.field(factory=list)

    def call(self, what: str, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> T | None:
        """Call `fn` and note how it went; an error is a finding, so it ends here, and None is returned."""
        if self.listener is not None:
            self.listener.calling(what)
        try:
            result = fn(*args, **kwargs)
        except Exception as error:  # noqa: BLE001 - whatever a device raises is what this is about
            self.add(Step.failed(what, error))
            return None
        self.add(Step(what, OK))
        return result

    def saw(self, what: str, value: object) -> None:
        """Note a value."""
        self.add(Step(what, str(value)))

    def add(self, step: Step) -> None:
        """Note a step."""
        self.steps.append(step)
        if self.listener is not None:
            self.listener.stepped(step)


@final
@attrs.frozen(eq=False)
class Probe:
    """A rule of the device, as something to do.

    `expected` has, by step, the outcomes that agree with the rule; a step that it does not name is not documented, and
    only written down. `only` names the one kind of runtime that can do it. A hazardous probe may leave the device
    waiting for ever, or takes what other processes need.
    """

    name: str
    rule: str
    run: Callable[[Lab, Notes], None]
    expected: Mapping[str, tuple[str, ...]]
    only: str | None = None
    hazardous: bool = False

    @property
    def subject(self) -> str:
        """Return the first part of the name."""
        return self.name.partition(".")[0]


def probe(
    name: str, rule: str, expected: Mapping[str, str], *, only: str | None = None, hazardous: bool = False
) -> Callable[[Callable[[Lab, Notes], None]], Probe]:
    """Turn a function into a `Probe`; the outcomes of a step are separated by ``|``."""
    outcomes = {what: tuple(one.strip() for one in text.split("|")) for what, text in expected.items()}
    return lambda run: Probe(name, rule, run, outcomes, only, hazardous)
