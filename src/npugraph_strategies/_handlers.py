"""Handlers: how one operator family is captured and updated, as frozen, stateless values.

The hooks carry the names that users of torch_npu know; values go in and values come out, and nothing that the
caller owns is changed. `UpdateParams` and `OutVariant` cover nearly every operator as a line of data. Where
behaviour differs, subclass one of them and override a hook.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from torch import Tensor

from npugraph_strategies._containers import leaves, map_tensors, tensors
from npugraph_strategies._helpers import NoWorkspace, OutputPolicy, WorkspacePolicy
from npugraph_strategies._names import OP_TYPES, OpLike, qualified_name, resolve
from npugraph_strategies._schema import REQUIRED, signature_of
from npugraph_strategies._values import as_given, snapshot
from npugraph_strategies.errors import BadArguments, InvalidValue, UnknownParameter

if TYPE_CHECKING:
    from collections.abc import Mapping

    from npugraph_strategies._calls import OpCall
    from npugraph_strategies._lengths import LengthRule
    from npugraph_strategies.runtimes._base import GraphRuntime

__all__ = ["DeclaredHandler", "OpHandler", "OutVariant", "UpdateParams", "updatable"]


class OpHandler(Protocol):
    """The strategy for one operator family. Handlers are values: hashable, comparable, without state."""

    @property
    def ops(self) -> tuple[str, ...]:
        """Return the qualified overloads it serves, such as ``"npu::npu_rms_norm.default"``."""
        ...

    @property
    def params(self) -> tuple[str, ...]:
        """Return the arguments that are host values and may change between replays."""
        ...

    @property
    def rebind(self) -> tuple[str, ...]:
        """Return the arguments that are device tensors and may be exchanged for others of the same form."""
        ...

    def should_handle(self, call: OpCall) -> bool:
        """Tell whether this call is to be recorded; when False it passes through untouched."""
        ...

    def prepare_capture(self, call: OpCall, runtime: GraphRuntime) -> OpCall:
        """Return the call to capture: the ``.out`` overload, with workspace and outputs, say."""
        ...

    def postprocess_result(self, call: OpCall, result: Any) -> Any:
        """Return what the model gets back, in the structure that eager returns."""
        ...

    def record_wrap_kwarg(self, call: OpCall, name: str, value: Any, runtime: GraphRuntime) -> Any:
        """Return how a value is kept in the record: a weak view of a device tensor, a snapshot of a host value."""
        ...

    def validate_update(self, call: OpCall, values: Mapping[str, Any]) -> None:
        """Raise `InvalidValue` for values that the operator would reject."""
        ...

    def update_args(self, call: OpCall, values: Mapping[str, Any]) -> OpCall:
        """Return the call with new values for declared names."""
        ...

    def prepare_update(self, call: OpCall, runtime: GraphRuntime) -> OpCall:
        """Return the call to issue for an update: with a workspace that fits its values, say."""
        ...


def updatable(handler: OpHandler) -> tuple[str, ...]:
    """Return all names that an update may give: host values and rebinds."""
    return (*handler.params, *handler.rebind)


def _names(value: str | Iterable[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)


def _ops(value: OpLike | Iterable[OpLike]) -> tuple[str, ...]:
    ops = (value,) if isinstance(value, OP_TYPES) else value
    return tuple(qualified_name(op) for op in ops)


def _pairs(value: Any) -> tuple[tuple[str, str], ...]:
    single = isinstance(value, (tuple, list)) and bool(value) and isinstance(value[0], OP_TYPES)
    pairs = [value] if single or isinstance(value, OP_TYPES) else value
    try:
        return tuple((qualified_name(default), qualified_name(out)) for default, out in map(_pair, pairs))
    except TypeError:
        raise TypeError(f"variants must be (overload, its out overload) pairs; given {value!r}") from None


def _pair(value: Any) -> tuple[OpLike, OpLike]:
    match value:
        case (default, out) if isinstance(default, OP_TYPES) and isinstance(out, OP_TYPES):
            return default, out
    raise TypeError


def _several(value: Any) -> tuple[Any, ...]:
    return tuple(value) if isinstance(value, Iterable) and not isinstance(value, str) else (value,)


def _having(*names: str) -> Callable[[Any, attrs.Attribute[Any], Any], None]:
    """Return a validator of a policy, or of several: each is an instance that has these names."""

    def validate(_: Any, field: attrs.Attribute[Any], value: Any) -> None:
        for given in value if isinstance(value, tuple) else (value,):
            if isinstance(given, type):
                raise TypeError(f"{field.name} must be an instance; given the class {given!r}")
            lacking = [name for name in names if not hasattr(given, name)]
            if lacking:
                raise TypeError(
                    f"{field.name} must have {', '.join(names)}; given {given!r}, which lacks {', '.join(lacking)}"
                )

    return validate


_RULES = _having("names", "check")
_WORKSPACE = _having("names", "helper", "at_capture", "at_update")
_OUTPUTS = _having("into", "names", "helper", "allocate")


class DeclaredHandler:
    """The hooks of both generic handlers, which follow from declared names. Not for use on its own."""

    if TYPE_CHECKING:  # the fields are declared by the two classes, so that they stand in a natural order
        ops: tuple[str, ...]
        params: tuple[str, ...]
        rebind: tuple[str, ...]
        lengths: tuple[LengthRule, ...]
        workspace: WorkspacePolicy

    def should_handle(self, call: OpCall) -> bool:  # noqa: ARG002 - a hook
        """Record every call."""
        return True

    def prepare_capture(self, call: OpCall, runtime: GraphRuntime) -> OpCall:  # noqa: ARG002 - a hook
        """Return the call with a workspace, as the policy says."""
        return self.workspace.at_capture(call)

    def postprocess_result(self, call: OpCall, result: Any) -> Any:  # noqa: ARG002 - a hook
        """Return the operator's own result."""
        return result

    def record_wrap_kwarg(self, call: OpCall, name: str, value: Any, runtime: GraphRuntime) -> Any:  # noqa: ARG002
        """Return a weak view of each device tensor at any depth, and snapshots of host values."""
        if name in self.params:
            return snapshot(value)

        # What is no tensor stays: numbers and strings, which nobody can change, and generators.
        return map_tensors(value, lambda t: runtime.weak_view(t) if runtime.is_device_tensor(t) else snapshot(t))

    def validate_update(self, call: OpCall, values: Mapping[str, Any]) -> None:
        """Raise `InvalidValue` for a rebind of another form, or lengths that break a rule."""
        for name in self.rebind:
            if name in values:
                _same_form(call, name, values[name])
        new = self.update_args(call, values)
        for rule in self.lengths:
            rule.check(new)

    def update_args(self, call: OpCall, values: Mapping[str, Any]) -> OpCall:
        """Return the call with the values; raise `UnknownParameter` for a name that is not declared."""
        declared = updatable(self)
        for name in values:
            if name not in declared:
                raise UnknownParameter(name, call.name, declared)
        return call.replace(**values) if values else call

    def prepare_update(self, call: OpCall, runtime: GraphRuntime) -> OpCall:  # noqa: ARG002 - a hook
        """Return the call with a workspace that fits, as the policy says."""
        return self.workspace.at_update(call)


def _same_form(call: OpCall, name: str, value: Any) -> None:
    """Refuse a rebind whose shape, strides, dtype or device is not the captured one's."""
    captured = call.arguments[name]
    if value is captured or (captured is not None and _forms(value) == _forms(captured)):
        return
    expected, given = "left out" if captured is None else as_given(captured), as_given(value)
    if expected == given:
        expected, given = f"{expected} with {_strides(captured)}", f"{given} with {_strides(value)}"
    raise InvalidValue(call.name, name, f"{expected}, as captured", given)


def _strides(value: Any) -> str:
    return f"strides {', '.join(str(list(tensor.stride())) for tensor in tensors(value))}"


def _forms(value: Any) -> list[Any]:
    """Return what must be equal, leaf by leaf; nothing but a tensor or None is equal to anything."""
    return [
        (x.shape, x.stride(), x.dtype, x.device) if isinstance(x, Tensor) else None if x is None else object()
        for x in leaves(value)
    ]


@attrs.frozen
class UpdateParams(DeclaredHandler):
    """The operator is captured as it is called; the named arguments may change between replays.

    `ops` are qualified overloads, `params` host values, `rebind` device tensors that may be exchanged for others
    of the same shape and dtype, `lengths` rules that new values must keep, `workspace` a policy.

    >>> UpdateParams("my::attention", "lengths").ops
    ('my::attention.default',)
    """

    ops: tuple[str, ...] = attrs.field(converter=_ops)
    params: tuple[str, ...] = attrs.field(converter=_names)
    rebind: tuple[str, ...] = attrs.field(converter=_names, default=(), kw_only=True)
    lengths: tuple[LengthRule, ...] = attrs.field(converter=_several, validator=_RULES, default=(), kw_only=True)
    workspace: WorkspacePolicy = attrs.field(factory=NoWorkspace, validator=_WORKSPACE, kw_only=True)


@attrs.frozen
class OutVariant(DeclaredHandler):
    """The operator allocates its results; it is captured as its ``.out`` overload, with results made beforehand.

    `variants` pairs each overload with the one to capture; both are served. `outputs` are policies that make the
    arguments which the other overload adds, `workspace` a policy for the workspace it takes.

    >>> OutVariant(("my::attention", "my::attention.out"), "lengths").ops
    ('my::attention.default', 'my::attention.out')
    """

    variants: tuple[tuple[str, str], ...] = attrs.field(converter=_pairs)
    params: tuple[str, ...] = attrs.field(converter=_names)
    rebind: tuple[str, ...] = attrs.field(converter=_names, default=(), kw_only=True)
    lengths: tuple[LengthRule, ...] = attrs.field(converter=_several, validator=_RULES, default=(), kw_only=True)
    workspace: WorkspacePolicy = attrs.field(factory=NoWorkspace, validator=_WORKSPACE, kw_only=True)
    outputs: tuple[OutputPolicy, ...] = attrs.field(converter=_several, validator=_OUTPUTS, default=(), kw_only=True)

    @property
    def ops(self) -> tuple[str, ...]:  # type: ignore[override]  # computed here, a field there
        """Return the allocating overloads and their out variants."""
        return tuple(dict.fromkeys(name for pair in self.variants for name in pair))

    def prepare_capture(self, call: OpCall, runtime: GraphRuntime) -> OpCall:
        """Return the out variant with outputs and workspace; a call that is one already keeps what it has."""
        target = dict(self.variants).get(call.name)
        if target is not None:
            known = signature_of(resolve(target)).arguments
            made = {o.into: o.allocate(call) for o in self.outputs if o.into in known}
            for name, argument in known.items():
                if argument.default is REQUIRED and name not in made and name not in call.arguments:
                    raise BadArguments(target, f"nothing makes argument {name!r}: add a policy for it to outputs=")
            call = call.replace(target, **made)
        return super().prepare_capture(call, runtime)
