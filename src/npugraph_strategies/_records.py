"""Records: one captured, updatable call each, with its event, task handle and label."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, final

import attrs

from npugraph_strategies._handlers import updatable

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

    from npugraph_strategies._bindings import Binding
    from npugraph_strategies._calls import OpCall
    from npugraph_strategies._handlers import OpHandler
    from npugraph_strategies.runtimes._base import RuntimeEvent

__all__ = ["Record", "RecordState", "Task"]


@attrs.define(eq=False)
class RecordState:
    """What the session and the graph know of one record, and change."""

    index: int
    label: str
    handler: OpHandler
    call: OpCall
    stream_id: int
    bindings: dict[str, list[Binding]] = attrs.field(factory=dict)
    resources: list[Tensor] = attrs.field(factory=list)
    armed: bool = False


@attrs.frozen(eq=False)
class Task:
    """The device's part of a record: the event that its replay waits for, and the handle of its task group."""

    record: RecordState
    event: RuntimeEvent
    handle: Any


@final
@attrs.frozen(eq=False, repr=False)
class Record:
    """One captured call that updates can reach: a read-only view. Made by a capture.

    >>> import torch
    >>> from npugraph_strategies import GraphCaptureSession, HandlerRegistry, UpdateParams
    >>> from npugraph_strategies.runtimes import SimulatedRuntime
    >>> registry = HandlerRegistry.of(UpdateParams("aten::add.out", "alpha"))
    >>> x, out = torch.ones(2), torch.empty(2)
    >>> with GraphCaptureSession(registry, runtime=SimulatedRuntime()).capture(label=lambda call: "sum") as graph:
    ...     _ = torch.add(x, x, out=out)
    >>> record = graph.records[0]
    >>> record, dict(record.values)
    (<Record 0 'sum#0' aten::add.out>, {'alpha': 1})
    """

    _state: RecordState

    @property
    def index(self) -> int:
        """Return the record's place in capture order, from 0."""
        return self._state.index

    @property
    def label(self) -> str:
        """Return where in the model the call stands."""
        return self._state.label

    @property
    def handler(self) -> OpHandler:
        """Return the handler it was captured with, and is updated with."""
        return self._state.handler

    @property
    def op(self) -> str:
        """Return the qualified name of the operator that was captured."""
        return self._state.call.name

    @property
    def params(self) -> tuple[str, ...]:
        """Return the names that an update may give."""
        return updatable(self.handler)

    @property
    def values(self) -> Mapping[str, Any]:
        """Return the values of the update parameters that stand now: the last ones given, first the captured ones."""
        return MappingProxyType({name: self._state.call.arguments[name] for name in self.params})

    @property
    def arguments(self) -> Mapping[str, Any]:
        """Return all arguments as they stand now; device tensors are weak views, valid while the graph is."""
        return self._state.call.arguments

    @property
    def armed(self) -> bool:
        """Tell whether the record was updated for the next replay."""
        return self._state.armed

    def __repr__(self) -> str:
        return f"<Record {self.index} {self.label!r} {self.op}{' armed' if self.armed else ''}>"
