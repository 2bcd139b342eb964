"""Comparing handlers with the operator schemas that are installed in this process."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any, Literal

import attrs

from npugraph_strategies._handlers import DeclaredHandler, OutVariant, UpdateParams, updatable
from npugraph_strategies._names import OP_TYPES, installed_overloads, is_installed, qualified_name, resolve
from npugraph_strategies._schema import REQUIRED, Signature, signature_of
from npugraph_strategies.errors import RegistryMismatch, UnknownOperator, _suggest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from npugraph_strategies._handlers import OpHandler

__all__ = ["CheckReport", "Finding", "check_handler_schema", "first_use_problem", "handler_problem", "is_data"]

Status = Literal["ok", "not installed", "wrong"]


@attrs.frozen
class Finding:
    """What was found about one operator of one handler.

    >>> from npugraph_strategies import HandlerRegistry, UpdateParams
    >>> HandlerRegistry.of(UpdateParams("aten::add.out", "alpha")).check().findings
    (Finding(op='aten::add.out', status='ok', problem=''),)
    """

    op: str
    status: Status
    problem: str = ""


@attrs.frozen
class CheckReport:
    """All findings of `HandlerRegistry.check`.

    >>> from npugraph_strategies import HandlerRegistry, UpdateParams
    >>> report = HandlerRegistry.of(UpdateParams("aten::add.out", "alpa")).check()
    >>> report.ok, report.wrong[0].problem
    (False, "no argument 'alpa' (did you mean 'alpha'?)")
    """

    findings: tuple[Finding, ...]
    not_data: tuple[OpHandler, ...] = ()
    """Handlers that are not plain data, since pickling does not give them back: they cannot go to another process."""

    @property
    def ok(self) -> bool:
        """Tell whether nothing is wrong (operators that are not installed here are not wrong)."""
        return not self.wrong

    @property
    def wrong(self) -> tuple[Finding, ...]:
        """Return what disagrees with a schema."""
        return tuple(f for f in self.findings if f.status == "wrong")

    @property
    def not_installed(self) -> tuple[Finding, ...]:
        """Return what could not be compared here."""
        return tuple(f for f in self.findings if f.status == "not installed")

    def raise_for_errors(self) -> None:
        """Raise `RegistryMismatch` when something is wrong."""
        if self.wrong:
            raise RegistryMismatch(tuple(f"{f.op}: {f.problem}" for f in self.wrong))


_HOOKS = (
    "should_handle",
    "prepare_capture",
    "postprocess_result",
    "record_wrap_kwarg",
    "validate_update",
    "update_args",
    "prepare_update",
)


def handler_problem(handler: Any) -> str | None:
    """Return why an object cannot be a handler, or None. Asked once, when a registry is built."""
    return next(_no_handler(handler), None)


def _no_handler(handler: Any) -> Iterator[str]:
    """Yield what keeps an object from being a handler, the most telling first."""
    if isinstance(handler, type):
        yield "which is a class: give an instance of it"
    if isinstance(handler, (list, tuple, set, dict)):
        yield "which is a container: give handlers one by one"
    for name in ("ops", "params", "rebind"):
        names = getattr(handler, name, None)
        if names is None:
            yield f"which has no {name}"
        elif not isinstance(names, tuple) or not all(isinstance(n, (str, *OP_TYPES)) for n in names):
            yield f"whose {name} is not a tuple of names: {names!r}"
    missing = [hook for hook in _HOOKS if not callable(getattr(handler, hook, None))]
    if missing:
        yield f"which lacks {', '.join(missing)}: subclass UpdateParams or OutVariant to inherit them"
    if not handler.ops:
        yield "which serves no operator"
    try:
        hash(handler)
    except TypeError as error:
        yield f"which cannot be hashed ({error}): handlers are values, make it frozen"


def is_data(handler: OpHandler) -> bool:
    """Tell whether a handler is plain data: pickled and back it is equal. One with a function as a field is not."""
    try:
        return bool(pickle.loads(pickle.dumps(handler)) == handler)  # noqa: S301 - what was pickled just now
    except Exception:  # noqa: BLE001 - whatever a foreign class raises, it means no
        return False


def check_handler_schema(handler: OpHandler) -> Iterator[Finding]:
    """Yield a finding for every operator of the handler."""
    for op in handler.ops:
        problems = list(_problems(handler, op)) if is_installed(op) else None
        if problems is None:
            yield _missing(op)
        elif problems:
            yield from (Finding(op, "wrong", problem) for problem in problems)
        else:
            yield Finding(op, "ok")


def first_use_problem(handler: OpHandler, signature: Signature) -> str | None:
    """Return why a handler's names do not fit the overload that it captures, with the overload, or None.

    `signature` is the prepared call's, so that a handler of any class is judged by what an update will issue.
    """
    problem = next(_name_problems(handler, signature), None)
    return problem and f"{signature.op}: {problem}"


def _missing(op: str) -> Finding:
    """Tell an overload that does not exist from an operator that is not installed."""
    base, _, overload = qualified_name(op).partition(".")
    known = installed_overloads(op)
    if known:
        return Finding(op, "wrong", f"{base} has no overload {overload!r}; it has {', '.join(known)}")
    return Finding(op, "not installed", f"{base} is not registered in this process")


def _problems(handler: OpHandler, op: str) -> Iterator[str]:
    signature = signature_of(resolve(op))
    yield from _name_problems(handler, signature)
    for name in handler.rebind:
        argument = signature.arguments.get(name)
        if argument is not None and "Tensor" not in argument.type:
            yield f"{name!r} is declared a rebind, but its type is {argument.spelled}, not Tensor"
    for name in handler.params:
        argument = signature.arguments.get(name)
        if argument is not None and argument.written:
            yield f"{name!r} is declared a host value, but the operator writes into it"
    if isinstance(handler, DeclaredHandler):
        yield from _policy_problems(handler, signature)
    if isinstance(handler, UpdateParams) and type(handler).prepare_capture is DeclaredHandler.prepare_capture:
        yield from _allocation_problems(signature)


def _name_problems(handler: OpHandler, signature: Signature) -> Iterator[str]:
    """Find declared names that no update could give."""
    for name in updatable(handler):
        if name not in signature.arguments:
            yield f"no argument {name!r}{_suggest(name, signature.arguments)}"
    for name in handler.rebind:
        if name in handler.params:
            yield f"{name!r} is declared both a host value and a rebind"


def _allocation_problems(signature: Signature) -> Iterator[str]:
    """Find results that are new memory: an update would write them where nothing captured reads.

    Some out overloads carry no alias annotation; they are known by their name.
    """
    writes = any(argument.written for argument in signature.arguments.values())
    if signature.allocates and not writes and "out" not in signature.op.rpartition(".")[2]:
        yield "it allocates its result, which an update cannot reach; use OutVariant with an overload that takes it"


def _policy_problems(handler: DeclaredHandler, signature: Signature) -> Iterator[str]:
    """Check names and helpers that the generic handlers' policies use."""
    for rule in handler.lengths:
        for name in rule.names:
            if name not in signature.arguments:
                yield f"length rule reads {name!r}, which is no argument{_suggest(name, signature.arguments)}"
    helpers = [handler.workspace.helper] if set(handler.workspace.names) & set(signature.arguments) else []
    target = dict(handler.variants).get(signature.op) if isinstance(handler, OutVariant) else None
    if isinstance(handler, OutVariant) and target is not None:
        helpers += [output.helper for output in handler.outputs]
        yield from _out_problems(handler, target, signature)
    for helper in filter(None, helpers):
        yield from _helper_problems(helper, signature)


def _out_problems(handler: OutVariant, target: str, signature: Signature) -> Iterator[str]:
    """Check that the out variant takes what the allocating overload takes, and what the policies make."""
    try:
        out = signature_of(resolve(target))
    except UnknownOperator:
        yield f"its out variant {target} is not installed"
        return
    made = {o.into for o in handler.outputs} | set(handler.workspace.names)
    for output in handler.outputs:
        for name in output.names if output.into in out.arguments else ():
            if name not in signature.arguments:
                yield f"output {output.into!r} is made from {name!r}, no argument{_suggest(name, signature.arguments)}"
    for name in signature.arguments:
        if name not in out.arguments:
            yield f"its out variant {target} lacks argument {name!r}"
    for name in out.arguments:
        if name not in signature.arguments and name not in made:
            yield f"nothing makes {name!r} of its out variant {target}"


def _helper_problems(helper: str, signature: Signature) -> Iterator[str]:
    """Check that a helper operator exists and takes a subset of the operator's arguments."""
    if not is_installed(helper):
        yield f"helper {helper} is not installed"
        return
    for name, argument in signature_of(resolve(helper)).arguments.items():
        if name not in signature.arguments and argument.default is REQUIRED:
            yield f"helper {helper} wants {name!r}, which is no argument of the operator"
