"""What a stream or a captured graph is made of: single steps, in order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import attrs
import torch

from npugraph_strategies._containers import leaves
from npugraph_strategies.runtimes._simulated._memory import poison

if TYPE_CHECKING:
    from collections.abc import MutableSet

    from torch import Tensor

    from npugraph_strategies.runtimes._simulated._memory import Operand

__all__ = [
    "AwaitFlag",
    "AwaitMark",
    "ClearFlag",
    "Flag",
    "Launch",
    "Mark",
    "Marker",
    "Patch",
    "Restore",
    "SetFlag",
    "Step",
]


class Step(Protocol):
    """One thing that a stream does."""

    free: ClassVar[bool]
    """True: it never waits, and nothing else waits for it."""

    @property
    def lacks(self) -> str:
        """Say what it waits for when it cannot run."""
        ...

    def ready(self, done: MutableSet[Marker]) -> bool:
        """Tell whether it can run now; `done` holds the markers that were passed."""
        ...

    def run(self, done: MutableSet[Marker]) -> None:
        """Do it."""
        ...


@attrs.define(eq=False)
class Flag:
    """The level-triggered flag of an external event; a graph that waits for it keeps it alive."""

    label: str
    raised: bool = False


@attrs.frozen(eq=False)
class Marker:
    """One record of an ordinary event, at one place of one stream."""

    label: str
    captured_in: object | None = None


class _Always:
    """A step that never waits."""

    free: ClassVar[bool] = False
    lacks = ""

    def ready(self, done: MutableSet[Marker]) -> bool:  # noqa: ARG002 - the protocol's shape
        """Say yes."""
        return True


@attrs.frozen(eq=False)
class SetFlag(_Always):
    """Record an external event."""

    flag: Flag

    def __str__(self) -> str:
        return f"record {self.flag.label!r}"

    def run(self, done: MutableSet[Marker]) -> None:  # noqa: ARG002 - the protocol's shape
        """Raise the flag; a second record before a wait changes nothing."""
        self.flag.raised = True


@attrs.frozen(eq=False)
class ClearFlag(_Always):
    """Reset an external event."""

    flag: Flag

    def __str__(self) -> str:
        return f"reset {self.flag.label!r}"

    def run(self, done: MutableSet[Marker]) -> None:  # noqa: ARG002 - the protocol's shape
        """Lower the flag."""
        self.flag.raised = False


@attrs.frozen(eq=False)
class AwaitFlag:
    """Wait for an external event."""

    free: ClassVar[bool] = False
    flag: Flag
    consumes: bool

    def __str__(self) -> str:
        return f"wait {self.flag.label!r}"

    @property
    def lacks(self) -> str:
        """Say which event nobody has recorded."""
        return f"for event {self.flag.label!r}, which nobody has recorded"

    def ready(self, done: MutableSet[Marker]) -> bool:  # noqa: ARG002 - the protocol's shape
        """Tell whether the flag is up."""
        return self.flag.raised

    def run(self, done: MutableSet[Marker]) -> None:  # noqa: ARG002 - the protocol's shape
        """Consume the record."""
        if self.consumes:
            self.flag.raised = False


@attrs.frozen(eq=False)
class Mark(_Always):
    """Record an ordinary event."""

    marker: Marker

    def __str__(self) -> str:
        return f"mark {self.marker.label!r}"

    def run(self, done: MutableSet[Marker]) -> None:
        """Note that the stream got here."""
        done.add(self.marker)


@attrs.frozen(eq=False)
class AwaitMark:
    """Wait for an ordinary event."""

    free: ClassVar[bool] = False
    marker: Marker

    def __str__(self) -> str:
        return f"wait for mark {self.marker.label!r}"

    @property
    def lacks(self) -> str:
        """Say which event was not reached."""
        return f"for stream event {self.marker.label!r}, which its stream has not reached"

    def ready(self, done: MutableSet[Marker]) -> bool:
        """Tell whether the other stream got there."""
        return self.marker in done

    def run(self, done: MutableSet[Marker]) -> None:
        """Go on."""


def _described(tensor: Tensor) -> str:
    """Return dtype and shape."""
    return f"{tensor.dtype} {tuple(tensor.shape)}"


@attrs.define(eq=False)
class Launch(_Always):
    """One captured operator, with aliases of the memory that it reads and writes."""

    free: ClassVar[bool] = True
    op: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    copies: tuple[tuple[int, Tensor], ...]
    """Where a fresh result goes: its place among the results, and the captured output."""
    operands: tuple[Operand, ...]
    dead_code: int
    grad: bool = False
    """Whether gradients were on at capture: some kernels ask, and compute the last bit differently."""
    patched: bool = False
    """True after an update: what the operator allocates then lies elsewhere, and the captured output is garbage."""
    checked: bool = False
    """True in a task group: the operands may be replaced while a replay runs, so they are checked when it runs."""

    def __str__(self) -> str:
        return str(self.op.name())

    def run(self, done: MutableSet[Marker]) -> None:  # noqa: ARG002 - the protocol's shape
        """Run the operator, and copy what it returned afresh into the captured outputs."""
        if self.checked:
            for operand in self.operands:
                operand.hold(self.dead_code)
        torch._C._set_grad_enabled(self.grad)  # noqa: SLF001 - ten times faster than the context manager
        result = self.op(*self.args, **self.kwargs)
        if self.copies:
            self._deliver(list(leaves(result)))

    def _deliver(self, results: list[Any]) -> None:
        """Copy results into the captured outputs, unless they lie there already."""
        for index, out in self.copies:
            got = results[index]
            if got is None:  # a kernel may leave out what its schema promises
                continue
            if got.shape != out.shape or got.dtype != out.dtype:
                problem = f"result {index} is {_described(got)}, captured was {_described(out)}"
                raise RuntimeError(problem)
            if got.data_ptr() != out.data_ptr() or got.stride() != out.stride():
                if self.patched:
                    poison(out.untyped_storage(), out.dtype)
                else:
                    out.copy_(got)


@attrs.frozen(eq=False)
class Restore(_Always):
    """Give a constant of the capture its value again: captured work may have written over it."""

    free: ClassVar[bool] = True
    constant: Tensor
    value: Tensor

    def __str__(self) -> str:
        return "constant"

    def run(self, done: MutableSet[Marker]) -> None:  # noqa: ARG002 - the protocol's shape
        """Copy the value that the host gave."""
        self.constant.copy_(self.value)


@attrs.frozen(eq=False)
class Patch(_Always):
    """Replace the operators of a task group."""

    launches: tuple[Launch, ...]
    replacements: tuple[tuple[tuple[Any, ...], dict[str, Any], tuple[Operand, ...]], ...]

    def __str__(self) -> str:
        return f"patch {', '.join(map(str, self.launches))}"

    def run(self, done: MutableSet[Marker]) -> None:  # noqa: ARG002 - the protocol's shape
        """Give every operator its new arguments; a replay that has not run it yet is affected."""
        for launch, (args, kwargs, operands) in zip(self.launches, self.replacements, strict=True):
            launch.args, launch.kwargs, launch.operands, launch.patched = args, kwargs, operands, True
