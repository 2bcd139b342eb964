"""What is known here about the operators of a registry, as plain values."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, final

import attrs

from npugraph_strategies import reference
from npugraph_strategies._handlers import DeclaredHandler, updatable
from npugraph_strategies._names import dispatch_name, is_installed, resolve
from npugraph_strategies._schema import signature_of

if TYPE_CHECKING:
    from npugraph_strategies import HandlerRegistry, OpHandler
    from npugraph_strategies._schema import Signature

__all__ = ["Operator", "Parameter", "catalogue"]


@final
@attrs.frozen
class Parameter:
    """A parameter that may be updated. `position` and `type` are the schema's, None where the schema is not known."""

    name: str
    kind: str
    position: str | None
    type: str | None


@final
@attrs.frozen
class Workspace:
    """The policy for the operator's workspace: the class's name, the helper that tells the size, the argument."""

    policy: str
    helper: str | None
    arguments: tuple[str, ...]


@final
@attrs.frozen
class Operator:
    """One overload that a registry serves. `provider` is who defined it in this process, None for nobody.

    `workspace` is None for a handler that declares no policy.
    """

    op: str
    parameters: tuple[Parameter, ...]
    workspace: Workspace | None
    installed: bool
    provider: str | None


def catalogue(registry: HandlerRegistry) -> tuple[Operator, ...]:
    """Return every overload that the registry serves, sorted."""
    return tuple(_operator(registry[op], op) for op in registry.ops)


def _operator(handler: OpHandler, op: str) -> Operator:
    installed = is_installed(op)
    signature = signature_of(resolve(op)) if installed else None
    return Operator(
        op=op,
        parameters=tuple(_parameter(handler, name, signature) for name in updatable(handler)),
        workspace=_workspace(handler),
        installed=installed,
        provider=_provider(op) if installed else None,
    )


def _parameter(handler: OpHandler, name: str, signature: Signature | None) -> Parameter:
    argument = None if signature is None else signature.arguments.get(name)
    if signature is None or argument is None:
        kind = "rebind" if name in handler.rebind else "host value"
        return Parameter(name, kind, None, None)
    host = "host tensor" if argument.kind == "Tensor" else "host list" if "List[" in argument.type else "host value"
    return Parameter(name, "rebind" if name in handler.rebind else host, signature.position(name), argument.spelled)


def _workspace(handler: OpHandler) -> Workspace | None:
    if not isinstance(handler, DeclaredHandler):
        return None
    policy = handler.workspace
    return Workspace(type(policy).__name__, policy.helper, policy.names)


def _provider(op: str) -> str:
    """Return who defined an installed operator.

    torch_npu is asked first: where it is loaded, the reference kernels define nothing that it has.
    """
    if "torch_npu" in sys.modules:
        return "torch_npu"
    ours = reference.installed() and dispatch_name(op) in reference.schemas()
    return "reference" if ours else "another extension"
