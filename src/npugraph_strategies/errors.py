"""Every error that this package raises, as small frozen records.

::

    StrategiesError
    ├── CallError
    │   ├── UnknownOperator (LookupError)      no such operator is installed
    │   ├── UnknownArgument (TypeError)        the operator's schema has no such argument
    │   └── BadArguments (TypeError)           arguments do not fit the schema
    ├── RegistryError
    │   ├── RegistryConflict (ValueError)      two handlers for one operator
    │   ├── InvalidHandler (TypeError)         an object that is no handler
    │   ├── NotRegistered (LookupError)        nothing to override or remove
    │   └── RegistryMismatch (ValueError)      a handler disagrees with the schema
    ├── CaptureError (RuntimeError)
    │   ├── NestedCapture                      a capture inside a capture
    │   ├── EmptyCapture                       the captured code launched nothing
    │   ├── OutputsNotFixed                    an update would write its results elsewhere
    │   ├── HostValueExpected (TypeError)      a host parameter was given a tensor on the device
    │   ├── NotCapturable                      the operator cannot run under capture
    │   └── AttachRefused                      the caller's graph cannot be attached to
    ├── UpdateError
    │   ├── UnknownParameter (LookupError)     no addressed record declares the name
    │   ├── UnknownLabel (LookupError)         a label pattern that matches nothing
    │   ├── AmbiguousUpdate (ValueError)       two patterns give one record the same name
    │   ├── WrongCount (ValueError)            not one mapping per record
    │   ├── MissingValues (ValueError)         a record gets nothing
    │   ├── InvalidValue (ValueError)          the operator would reject the value
    │   └── WorkspaceTooSmall (ValueError)     a fixed workspace does not fit the new values
    ├── GraphStateError (RuntimeError)
    │   ├── GraphNotReady                      the capture has not ended, or has failed
    │   ├── GraphInCapture                     a graph used while a stream is being captured
    │   ├── GraphNotArmed                      replay without an update
    │   ├── GraphPoisoned                      an update failed halfway
    │   ├── GraphInvalidated                   `invalidate()` was called
    │   ├── BrokenOrder                        an order that does not update and replay once each
    │   ├── GraphClosed                        `close()` was called
    │   ├── StaleBinding                       a captured tensor died, moved or was resized
    │   └── SharedStream                       updates and replays on one stream
    ├── DeviceError (RuntimeError)             the device answered with a code
    │   ├── ResourceExhausted                  streams or events have run out
    │   └── DeviceHang                         the device waits for what nobody will signal
    ├── RuntimeUnavailable (RuntimeError)      the runtime's software is not installed here
    ├── InvalidSetting (ValueError)            a setting of the CANN simulator has a wrong value
    ├── BuildFailed (RuntimeError)             the CANN simulator could not be compiled
    └── KernelError (RuntimeError)
        ├── NotSimulated (NotImplementedError) the reference kernel does not cover these arguments
        └── OperatorRejected (ValueError)      the device would reject these arguments

An error says what was given, what was expected and what to do about it; the facts stand in its fields.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = [
    "AmbiguousUpdate",
    "AttachRefused",
    "BadArguments",
    "BrokenOrder",
    "BuildFailed",
    "CallError",
    "CaptureError",
    "DeviceError",
    "DeviceHang",
    "EmptyCapture",
    "GraphClosed",
    "GraphInCapture",
    "GraphInvalidated",
    "GraphNotArmed",
    "GraphNotReady",
    "GraphPoisoned",
    "GraphStateError",
    "HostValueExpected",
    "InvalidHandler",
    "InvalidSetting",
    "InvalidValue",
    "KernelError",
    "MissingValues",
    "NestedCapture",
    "NotCapturable",
    "NotRegistered",
    "NotSimulated",
    "OperatorRejected",
    "OutputsNotFixed",
    "RegistryConflict",
    "RegistryError",
    "RegistryMismatch",
    "ResourceExhausted",
    "RuntimeUnavailable",
    "SharedStream",
    "StaleBinding",
    "StrategiesError",
    "UnknownArgument",
    "UnknownLabel",
    "UnknownOperator",
    "UnknownParameter",
    "UpdateError",
    "WorkspaceTooSmall",
    "WrongCount",
]


def _suggest(given: str, known: Iterable[str]) -> str:
    """Return `` (did you mean 'x'?)`` for the closest known name, or nothing."""
    close = difflib.get_close_matches(given, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _listed(names: Iterable[str], *, most: int = 8) -> str:
    """Join names for a sentence, the first few of them."""
    found = list(names)
    shown = ", ".join(found[:most])
    return f"{shown} and {len(found) - most} more" if len(found) > most else shown or "none"


class StrategiesError(Exception):
    """Base of every error of this package."""


class CallError(StrategiesError):
    """An operator call could not be described."""


class RegistryError(StrategiesError):
    """A registry could not be built or changed as asked."""


class CaptureError(StrategiesError, RuntimeError):
    """A capture could not begin, go on or end."""


class UpdateError(StrategiesError):
    """An update was refused before anything on the device was touched."""


class GraphStateError(StrategiesError, RuntimeError):
    """The graph is not in a state that allows the call."""


class KernelError(StrategiesError, RuntimeError):
    """A reference kernel could not run."""


# -- calls -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class UnknownOperator(CallError, LookupError):
    """No operator of this name is installed in this process."""

    name: str
    hint: str = ""

    def __str__(self) -> str:
        """Return the sentence."""
        hint = self.hint or "import the library that defines it, or call npugraph_strategies.reference.install()"
        return f"operator {self.name!r} is not installed here; {hint}"


@attrs.frozen
class UnknownArgument(CallError, TypeError):
    """The operator's schema has no argument of this name."""

    op: str
    name: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.op} has no argument {self.name!r}{_suggest(self.name, self.known)}; "
            f"it takes {_listed(self.known, most=60)}"
        )


@attrs.frozen
class BadArguments(CallError, TypeError):
    """The arguments do not fit the operator's schema."""

    op: str
    problem: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.op}: {self.problem}"


# -- registries ------------------------------------------------------------------------------------------------------


@attrs.frozen
class RegistryConflict(RegistryError, ValueError):
    """Two different handlers serve one operator."""

    op: str
    first: Any
    second: Any

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.op} already has a handler: {self.first!r}; the other one is {self.second!r}. "
            f"Use registry.override(handler) to replace it on purpose"
        )


@attrs.frozen
class InvalidHandler(RegistryError, TypeError):
    """An object was given as a handler that is none."""

    handler: Any
    problem: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"a registry holds handlers; given {self.handler!r}, {self.problem}"


@attrs.frozen
class NotRegistered(RegistryError, LookupError):
    """The registry has no such handler or operator."""

    what: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.what} is not in the registry{_suggest(self.what, self.known)}; it serves {_listed(self.known)}"


@attrs.frozen
class RegistryMismatch(RegistryError, ValueError):
    """Handlers disagree with the schemas installed here."""

    problems: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentences, one a line."""
        return "the registry does not fit the installed operators:\n" + "\n".join(f"  - {p}" for p in self.problems)


# -- capture ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class NestedCapture(CaptureError):
    """A capture was begun while this thread's stream is being captured."""

    label: str

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"cannot capture {self.label}: this stream is being captured already. End the outer capture first; "
            f"inside a capture that you own, use session.attach(npu_graph)"
        )


@attrs.frozen
class EmptyCapture(CaptureError):
    """The captured code launched no task at all."""

    label: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.label} captured nothing: no operator was launched on the capture stream inside the with block"


@attrs.frozen
class OutputsNotFixed(CaptureError):
    """A handled operator allocates its results, so that an update would write them into other memory."""

    op: str
    label: str

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.op} (record {self.label!r}) returns memory that is none of its arguments; an update would compute "
            f"into new memory, which nothing captured reads. Capture an overload that takes its outputs: OutVariant"
        )


@attrs.frozen
class HostValueExpected(CaptureError, TypeError):
    """A host parameter was given a tensor that lies on the device, or that the capture itself computes."""

    op: str
    name: str

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.op}: {self.name!r} is a host value by its handler, but was given a tensor on the device, whose "
            f"content is not known while a graph is captured; give it a host value, or declare it a rebind"
        )


@attrs.frozen
class NotCapturable(CaptureError):
    """The operator needs the host, so it cannot run under capture."""

    op: str
    reason: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.op} cannot be captured: {self.reason}"


@attrs.frozen
class AttachRefused(CaptureError):
    """The session cannot attach to the caller's graph."""

    reason: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"cannot attach: {self.reason}"


# -- updates ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class UnknownParameter(UpdateError, LookupError):
    """No addressed record declares this update parameter."""

    name: str
    where: str
    known: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.name!r} is not an update parameter of {self.where}{_suggest(self.name, self.known)}; "
            f"declared there: {_listed(self.known)}"
        )


@attrs.frozen
class UnknownLabel(UpdateError, LookupError):
    """A label pattern matches no record of the graph."""

    pattern: str
    labels: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"label {self.pattern!r} matches no record{_suggest(self.pattern, self.labels)}; "
            f"labels: {_listed(self.labels)}"
        )


@attrs.frozen
class AmbiguousUpdate(UpdateError, ValueError):
    """Two patterns give the same parameter to the same record."""

    label: str
    name: str
    patterns: tuple[str, str]

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"both {self.patterns[0]!r} and {self.patterns[1]!r} give {self.name!r} to record {self.label!r}; "
            f"make the patterns disjoint"
        )


@attrs.frozen
class WrongCount(UpdateError, ValueError):
    """The number of mappings is not the number of records."""

    expected: int
    given: int
    labels: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"each([...]) wants one mapping per record: expected {self.expected}, given {self.given}; "
            f"records in capture order: {_listed(self.labels)}"
        )


@attrs.frozen
class MissingValues(UpdateError, ValueError):
    """Records would get no value at all."""

    labels: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"no values for record(s) {_listed(self.labels)}; give them values, "
            f"or pass rest=KEEP to let their last values stand"
        )


@attrs.frozen
class InvalidValue(UpdateError, ValueError):
    """The operator would reject this value of an update parameter."""

    op: str
    name: str
    expected: str
    given: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.op}: {self.name} must be {self.expected}; given {self.given}"


@attrs.frozen
class WorkspaceTooSmall(UpdateError, ValueError):
    """The workspace that was captured does not fit the new values."""

    op: str
    needed: int
    available: int

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.op}: the new values need a workspace of {self.needed} bytes, the captured one has "
            f"{self.available}; capture with larger values or let the workspace grow"
        )


# -- graphs ----------------------------------------------------------------------------------------------------------


@attrs.frozen
class GraphNotReady(GraphStateError):
    """The graph is still being captured, or its capture failed."""

    label: str
    state: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.label} is {self.state}; leave the capture's with block normally before using the graph"


@attrs.frozen
class GraphInCapture(GraphStateError):
    """The graph was used while this thread's stream is being captured."""

    label: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.label} cannot be used inside a capture; update and replay it after the capture has ended"


@attrs.frozen
class GraphNotArmed(GraphStateError):
    """A replay would wait for ever for records that no update has signalled."""

    label: str
    records: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.label} cannot be replayed: record(s) {_listed(self.records)} were not updated since the last "
            f"replay. Call update(values) first, or update({{}}, rest=KEEP) to use the last values again"
        )


@attrs.frozen
class GraphPoisoned(GraphStateError):
    """An update failed halfway, so some records may hold new values and others old ones."""

    label: str
    reason: str

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.label} is poisoned, because {self.reason}; replay is refused until an update that reaches "
            f"every record succeeds"
        )


@attrs.frozen
class GraphInvalidated(GraphStateError):
    """The caller declared the graph's contents out of date."""

    label: str
    reason: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.label} was invalidated ({self.reason}); capture again"


@attrs.frozen
class BrokenOrder(GraphStateError):
    """An order did not call update and replay exactly once each."""

    order: str
    called: tuple[str, ...]

    def __str__(self) -> str:
        """Return the sentence."""
        garbage = ". The replay was launched without its update and computes garbage" * (self.called == ("replay",))
        return (
            f"{self.order} must call update() and replay() once each in its run(); "
            f"it called {_listed(self.called)}{garbage}"
        )


@attrs.frozen
class GraphClosed(GraphStateError):
    """The graph was closed."""

    label: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.label} is closed; capture again to get a new graph"


@attrs.frozen
class StaleBinding(GraphStateError):
    """A tensor that the graph uses by address is gone, has moved or was resized.

    `record` is the label of the record whose argument it is, or empty for a tensor of a watched module.
    """

    label: str
    record: str
    op: str
    argument: str
    problem: str

    def __str__(self) -> str:
        """Return the sentence."""
        record = f" (record {self.record!r})" if self.record else ", a watched module,"
        return (
            f"{self.label}: {self.argument!r} of {self.op}{record} {self.problem}; "
            f"keep the tensor alive and in place while the graph is used, or capture again"
        )


@attrs.frozen
class SharedStream(GraphStateError):
    """The update stream was to capture or replay as well."""

    label: str
    stream: str

    def __str__(self) -> str:
        """Return the sentence."""
        return (
            f"{self.label}: stream {self.stream} is the update stream, which can neither capture nor replay; "
            f"use another stream"
        )


# -- devices ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class DeviceError(StrategiesError, RuntimeError):
    """The device refused a call; `code` is CANN's error code."""

    code: int
    doing: str
    problem: str

    def __str__(self) -> str:
        """Return the sentence with the code."""
        return f"{self.doing} failed with error code {self.code}: {self.problem}"


@attrs.frozen
class ResourceExhausted(DeviceError):
    """Streams or events have run out (codes 207005, 207007, 207008)."""


@attrs.frozen
class DeviceHang(DeviceError):
    """The device waits for something that nobody will signal (code 507046)."""


@attrs.frozen
class RuntimeUnavailable(StrategiesError, RuntimeError):
    """The software that a runtime needs is not installed, or cannot be loaded here."""

    runtime: str
    reason: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.runtime} is not available here: {self.reason}"


# -- the CANN simulator ----------------------------------------------------------------------------------------------


@attrs.frozen
class InvalidSetting(StrategiesError, ValueError):
    """A setting of the CANN simulator has a value that it cannot have; `name` is how it was given."""

    name: str
    expected: str
    given: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.name} must be {self.expected}; given {self.given}"


@attrs.frozen
class BuildFailed(StrategiesError, RuntimeError):
    """The compiler did not make the CANN simulator; `output` is what it said."""

    command: str
    output: str

    def __str__(self) -> str:
        """Return the compiler's text and the command."""
        return f"the CANN simulator could not be built:\n{self.output.rstrip()}\nThe command was: {self.command}"


# -- reference kernels -----------------------------------------------------------------------------------------------


@attrs.frozen
class NotSimulated(KernelError, NotImplementedError):
    """The reference kernel does not cover these arguments."""

    op: str
    what: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"the reference kernel of {self.op} does not cover {self.what}"


@attrs.frozen
class OperatorRejected(KernelError, ValueError):
    """The operator rejects these arguments, as the device would (code 561002)."""

    op: str
    problem: str

    def __str__(self) -> str:
        """Return the sentence."""
        return f"{self.op} rejects its arguments (561002): {self.problem}"
