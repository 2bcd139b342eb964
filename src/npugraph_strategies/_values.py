"""Values of update parameters: taken from the caller in any usual form, kept as private snapshots.

A value belongs to the library from the moment it is submitted: the caller may change its list the next moment.
"""

from __future__ import annotations

import copy
import operator
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from npugraph_strategies._containers import map_leaves
from npugraph_strategies.errors import InvalidValue

if TYPE_CHECKING:
    from npugraph_strategies._calls import OpCall

__all__ = ["as_given", "host_value", "same_value", "snapshot"]


def snapshot(value: Any) -> Any:
    """Return a copy that later mutation by the caller cannot reach; containers keep their type.

    >>> lengths = [3]; kept = snapshot(lengths); lengths[0] = 4; kept
    [3]
    """
    return map_leaves(value, lambda x: _clone(x) if isinstance(x, Tensor) else copy.deepcopy(x))


def _clone(tensor: Tensor) -> Tensor:
    """Copy a host tensor now, even while a capture stores what is launched."""
    with _disable_current_modes():
        return tensor.detach().clone()


def host_value(call: OpCall, name: str, value: Any) -> Any:
    """Return `value` as the schema wants argument `name` of `call`, as a snapshot.

    Integer lists may be given as a list, tuple, range, NumPy array or CPU tensor of integers and become a tuple;
    host tensors may be given in the same forms and get the dtype of the captured one. Raises `InvalidValue`.
    """
    argument = call.signature.arguments[name]
    if value is None:
        if argument.optional:
            return None
        raise _invalid(call, name, argument.spelled, value)
    if argument.kind == "List[int]":
        return _integers(call, name, value)
    if argument.kind == "Tensor":
        return _host_tensor(call, name, value)
    if argument.kind in _SCALARS:
        if isinstance(value, _SCALARS[argument.kind]) and (argument.kind == "bool" or not isinstance(value, bool)):
            return value
        raise _invalid(call, name, argument.spelled, value)
    return snapshot(value)


_SCALARS: dict[str, tuple[type, ...]] = {
    "int": (int, torch.SymInt),
    "float": (float, int),
    "bool": (bool,),
    "str": (str,),
}


def _integers(call: OpCall, name: str, value: Any) -> tuple[int, ...]:
    """Return a tuple of integers from any sequence of them."""
    try:
        items = value.tolist() if isinstance(value, Tensor) else list(value)
        integers = tuple(operator.index(item) for item in items)
    except TypeError:
        raise _invalid(call, name, "a sequence of integers", value) from None
    if any(isinstance(item, bool) for item in items):
        raise _invalid(call, name, "a sequence of integers, not of truth values", value)
    return integers


def _host_tensor(call: OpCall, name: str, value: Any) -> Tensor:
    """Return a private CPU tensor with the dtype of the captured one."""
    captured = call.arguments[name]
    try:
        tensor = torch.as_tensor(value).detach()
    except (TypeError, ValueError, RuntimeError):
        raise _invalid(call, name, "a tensor, or a sequence of numbers", value) from None
    dtype = captured.dtype if isinstance(captured, Tensor) else tensor.dtype
    if tensor.device.type != "cpu":
        raise _invalid(call, name, "a host value (this device tensor would have to be copied back first)", value)
    kept = tensor.to(dtype, copy=True)
    if not dtype.is_floating_point and not torch.equal(kept.to(tensor.dtype), tensor):
        raise _invalid(call, name, f"a value that {dtype} can hold", value)
    return kept


def same_value(a: Any, b: Any) -> bool:
    """Tell whether two host values of a parameter are the same for the operator.

    >>> same_value((1, 2), [1, 2]), same_value((1,), None), same_value(0, False)
    (True, False, False)
    """
    if a is b:
        return True
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(map(same_value, a, b))
    return type(a) is type(b) and not isinstance(a, Tensor) and bool(a == b)


def as_given(value: Any) -> str:
    """Show a value in an error: tensors by shape and dtype, long lists shortened."""
    if isinstance(value, Tensor):
        text = f"a {value.dtype} tensor of shape {list(value.shape)}"
        return f"{text} on {value.device}" if value.device.type != "cpu" else text
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:117]}..."  # noqa: PLR2004 - a line's worth


def _invalid(call: OpCall, name: str, expected: str, value: Any) -> InvalidValue:
    return InvalidValue(call.name, name, expected, as_given(value))
