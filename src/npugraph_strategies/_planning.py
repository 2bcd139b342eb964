"""Phase one of an update, on the host: what each record will be given, with everything refused that can be."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import attrs
from torch import Tensor

from npugraph_strategies._bindings import Binding
from npugraph_strategies._containers import leaves
from npugraph_strategies._handlers import DeclaredHandler
from npugraph_strategies._pairing import add_note
from npugraph_strategies._values import as_given, host_value, same_value
from npugraph_strategies.errors import InvalidValue, UpdateError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from npugraph_strategies._calls import OpCall
    from npugraph_strategies._records import RecordState, Task
    from npugraph_strategies._routing import Routed
    from npugraph_strategies.runtimes._base import GraphRuntime

__all__ = ["Planned", "Planner", "Validation"]

Validation: TypeAlias = Literal["error", "warn", "off"]


@attrs.frozen
class Planned:
    """What an update will do to one record."""

    task: Task
    call: OpCall
    changed: bool
    before: tuple[OpCall, dict[str, list[Binding]]]
    bindings: dict[str, list[Binding]] = attrs.field(factory=dict)
    resources: list[Tensor] = attrs.field(factory=list)


class Planner:
    """Plans the updates of one graph."""

    def __init__(self, name: str, runtime: GraphRuntime, validation: Validation) -> None:
        self._name = name
        self._runtime = runtime
        self._validation = validation
        self._workspaces: dict[Any, Tensor] = {}

    def plan(self, tasks: tuple[Task, ...], routed: Routed, *, force: bool) -> list[Planned]:
        """Return what to do to each record; with `force` every record is issued anew, changed or not.

        Raises `UpdateError` with a note that names record and graph.
        """
        plan = []
        for task, given in zip(tasks, routed, strict=True):
            try:
                plan.append(self._plan(task, given, force=force))
            except UpdateError as error:  # noqa: PERF203 - each record is named in its own error
                add_note(error, f"in record {task.record.label!r} of {self._name}")
                raise
        return plan

    def forget(self) -> None:
        """Let go of the workspaces that handlers made."""
        self._workspaces.clear()

    def _plan(self, task: Task, given: Mapping[str, Any], *, force: bool) -> Planned:
        record = task.record
        handler, call = record.handler, record.call
        before = (call, record.bindings)
        if not given:
            return Planned(task, call, force, before)
        host = {n: host_value(call, n, v) for n, v in given.items() if n not in handler.rebind}
        rebinds = {n: given[n] for n in handler.rebind if n in given and given[n] is not call.arguments[n]}
        if not force and not rebinds and all(same_value(v, call.arguments[n]) for n, v in host.items()):
            return Planned(task, call, False, before)
        bindings = {n: list(_bind(record, n, v)) for n, v in rebinds.items()}
        self._validate(record, {**host, **rebinds})
        kept = {n: handler.record_wrap_kwarg(call, n, v, self._runtime) for n, v in rebinds.items()}
        new = handler.prepare_update(handler.update_args(call, {**host, **kept}), self._runtime)
        new, resources = self._made_for(record, new, {*host, *kept})
        return Planned(task, new, True, before, bindings, resources)

    def _validate(self, record: RecordState, values: Mapping[str, Any]) -> None:
        """Ask the handler whether the operator would take the values."""
        if self._validation == "off":
            return
        try:
            record.handler.validate_update(record.call, values)
        except InvalidValue as error:
            if self._validation == "error":
                raise
            # Six frames up: _plan, plan, the graph's _plan, update or step, and their caller.
            warnings.warn(f"{error} (record {record.label!r} of {self._name})", stacklevel=6)

    def _made_for(self, record: RecordState, new: OpCall, given: set[str]) -> tuple[OpCall, list[Tensor]]:
        """Return the call and the tensors that the handler made for it, which the graph has to keep.

        A workspace holds nothing between calls, and records of one handler that were captured on one stream run one
        after the other: the largest workspace made so far serves all of them.
        """
        before = {id(tensor) for _, tensor in record.call.tensors()}
        made = {name: tensor for name, tensor in new.tensors() if name not in given and id(tensor) not in before}
        for name in _workspaces(record) & set(made):
            key = (record.handler, name, record.stream_id, made[name].dtype, made[name].device)
            shared = self._workspaces.get(key)
            if shared is None or shared.nbytes < made[name].nbytes:
                self._workspaces[key] = made[name]
            else:
                made[name] = shared
                new = new.replace(**{name: shared})
        kept = [tensor for name, tensor in new.tensors() if name in made]
        return new, kept


def _workspaces(record: RecordState) -> set[str]:
    """Return the arguments that are workspaces."""
    return set(record.handler.workspace.names) if isinstance(record.handler, DeclaredHandler) else set()


def _bind(record: RecordState, name: str, value: Any) -> Iterator[Binding]:
    """Yield bindings to the tensors of a rebind; refuse anything else, which no operator takes for a tensor."""
    for leaf in leaves(value):
        if isinstance(leaf, Tensor):
            yield Binding.of(leaf, record=record.label, op=record.call.name, argument=name)
        elif leaf is not None:
            raise InvalidValue(record.call.name, name, "a tensor, like the captured one", as_given(value))
