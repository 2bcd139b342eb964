"""Values of update parameters: taken from the caller in any usual form, kept as private snapshots.

A value belongs to the library from the moment it is submitted: the caller may change its list the next moment.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

import attrs
import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes

from npugraph_strategies._containers import leaves, map_leaves, map_tensors, tensors
from npugraph_strategies.errors import InvalidValue, UnknownArgument

if TYPE_CHECKING:
    from npugraph_strategies._calls import OpCall

__all__ = ["as_given", "brief", "host_value", "same_value", "snapshot"]


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

    Lists may be given as a list, tuple, range, NumPy array or CPU tensor and become a tuple; host tensors may be
    given in the same forms, must have the shape of the captured one, and get its dtype. Raises `InvalidValue`, or
    `UnknownArgument` when the operator has no such argument.
    """
    argument = call.signature.arguments.get(name)
    if argument is None:
        raise UnknownArgument(call.name, name, tuple(call.signature.arguments))
    if value is None and argument.optional:
        return None
    if argument.kind == "Tensor" and value is not None:
        return _host_tensor(call, name, value)
    try:
        return _converted(argument.kind, value)
    except TypeError:
        expected = "a sequence of 64-bit integers" if argument.kind == "List[int]" else f"a host {argument.spelled}"
        raise _invalid(call, name, expected, value) from None


# -- lists and scalars -----------------------------------------------------------------------------------------------


def _converted(kind: str, value: Any) -> Any:
    """Return a private value of a schema type; raise TypeError for a value of another type."""
    if kind == "List[int]":
        return _integers(value)
    if kind.startswith("List["):
        return tuple(_converted(kind[5:-1], item) for item in _items(value))
    if kind.startswith("Optional["):
        return None if value is None else _converted(kind[9:-1], value)
    if kind in _SCALARS:
        return _SCALARS[kind](_plain(value))
    if value is None:
        raise TypeError
    return snapshot(value)


@runtime_checkable
class _Array(Protocol):
    """A tensor, a NumPy array or scalar, an ``array.array``."""

    def tolist(self) -> Any: ...


def _plain(value: Any) -> Any:
    """Return Python numbers, in lists, for a host array."""
    if isinstance(value, Tensor) and value.device.type != "cpu":
        raise TypeError  # it would have to be copied back first, and the host would wait for the device
    return value.tolist() if isinstance(value, _Array) else value


def _items(value: Any) -> Sequence[Any]:
    """Return the items of a sequence or array."""
    items = value if isinstance(value, (list, tuple)) else _plain(value)
    if not isinstance(items, Sequence) or isinstance(items, (str, bytes, bytearray)):
        raise TypeError
    return items


def _integers(value: Any) -> tuple[int, ...]:
    """Return a tuple of integers from a sequence of them."""
    items = _items(value)
    if set(map(type, items)) <= {int} and (not items or (min(items) >= _LEAST and max(items) <= _MOST)):
        return tuple(items)  # nearly always, and quick
    return tuple(_integer(_plain(item)) for item in items)


_LEAST: Final = -(2**63)
_MOST: Final = 2**63 - 1


def _integer(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    integer = operator.index(value)
    if not _LEAST <= integer <= _MOST:
        raise TypeError
    return integer


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError
    return float(value)


def _instance(*kinds: type) -> Callable[[Any], Any]:
    def check(value: Any) -> Any:
        if not isinstance(value, kinds):
            raise TypeError
        return value

    return check


def _number(value: Any) -> complex:
    if not isinstance(value, (int, float, complex)) or (
        isinstance(value, int) and not _LEAST <= value <= 2 * _MOST + 1
    ):
        raise TypeError  # an integer has to fit 64 bits, with or without sign
    return value


_SCALARS: Final[dict[str, Callable[[Any], Any]]] = {
    "int": _integer,
    "float": _float,
    "bool": _instance(bool),
    "str": _instance(str),
    "number": _number,
}


# -- host tensors ----------------------------------------------------------------------------------------------------


def _host_tensor(call: OpCall, name: str, value: Any) -> Tensor:
    """Return a private CPU tensor with the dtype and the shape of the captured one, which the operator keeps."""
    captured = call.arguments[name]
    if any(tensor.device.type != "cpu" for tensor in tensors(value)):
        raise _invalid(call, name, "a host value (this device tensor would have to be copied back first)", value)
    given = _as_tensor(value)
    if given is None:
        raise _invalid(call, name, "a tensor, or a sequence of numbers", value)
    dtype = captured.dtype if isinstance(captured, Tensor) else given.dtype
    if isinstance(captured, Tensor) and given.shape != captured.shape:
        raise _invalid(call, name, f"a tensor of shape {list(captured.shape)}, as captured", value)
    kept = given.to(dtype, copy=True)
    if not _keeps(given, kept, value):
        raise _invalid(call, name, _held_by(dtype), value)
    return kept


def _held_by(dtype: torch.dtype) -> str:
    """Return what a tensor of this dtype takes."""
    if dtype is torch.bool:
        return "truth values"
    return f"{'numbers' if dtype.is_floating_point or dtype.is_complex else 'integers'} that {dtype} can hold"


def _as_tensor(value: Any) -> Tensor | None:
    """Return a CPU tensor, whatever the default device is, or None when the value cannot be one."""
    if isinstance(value, Tensor):
        return value.detach()
    if isinstance(value, (list, tuple)):
        value = map_leaves(value, _plain)  # torch reads lists of arrays slowly, and warns of it
    try:
        return torch.tensor(value, device="cpu")
    except (TypeError, ValueError, RuntimeError):
        if not isinstance(value, _Array):
            return None
    try:  # an array that torch does not read, such as one with negative strides
        return torch.tensor(value.tolist(), device="cpu")
    except (TypeError, ValueError, RuntimeError):
        return None


def _keeps(given: Tensor, kept: Tensor, value: Any) -> bool:
    """Tell whether a conversion has kept the kind of number, and for integers the numbers."""
    if not given.numel() or (isinstance(value, Tensor) and given.dtype is kept.dtype):
        return True
    truth = given.dtype is torch.bool or any(isinstance(leaf, bool) for leaf in leaves(value))
    if truth != (kept.dtype is torch.bool) or not torch.can_cast(given.dtype, kept.dtype):
        return False
    return kept.dtype.is_floating_point or torch.equal(kept.to(given.dtype), given)


# -- comparing and showing -------------------------------------------------------------------------------------------


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
    text = brief(value)
    return text if len(text) <= 120 else f"{text[:117]}..."  # noqa: PLR2004 - a line's worth


def brief(value: Any) -> str:
    """Return the repr of a value, with tensors at any depth by dtype and shape: their content may be on a device.

    >>> brief([1, torch.zeros(2, 3)])
    '[1, float32[2, 3]]'
    """
    return repr(map_tensors(value, _Shape))


@attrs.frozen(repr=False)
class _Shape:
    """Stands for a tensor in a repr."""

    tensor: Tensor

    def __repr__(self) -> str:
        return f"{str(self.tensor.dtype).removeprefix('torch.')}{list(self.tensor.shape)}"


def _invalid(call: OpCall, name: str, expected: str, value: Any) -> InvalidValue:
    return InvalidValue(call.name, name, expected, as_given(value))
