"""Calls as values: what binding refuses, what replacing does, how a call is shown."""

from __future__ import annotations

import pytest
import torch

from npugraph_strategies import OpCall
from npugraph_strategies.errors import BadArguments, UnknownArgument, UnknownOperator
from support import toys

X = torch.arange(3.0)


def mix(*args, **kwargs):
    return OpCall.bind("nstest::mix", args or (X, [1, 2]), kwargs)


def test_arguments_are_in_schema_order():
    """All arguments are there by name, in schema order, however they were given."""
    call = OpCall.bind("nstest::mix", (), {"mode": "abc", "sizes": [1], "x": X})
    assert list(call.arguments) == ["x", "sizes", "scale", "shift", "flag", "mode", "lens", "extra"]


def test_defaults_are_filled_in():
    """An argument that was not given has its schema default."""
    assert dict(mix().arguments) | {"x": None, "sizes": None} == {
        "x": None,
        "sizes": None,
        "scale": 1.0,
        "shift": 0,
        "flag": False,
        "mode": "a",
        "lens": None,
        "extra": None,
    }


def test_arguments_are_read_only():
    """A call's arguments cannot be changed through it."""
    with pytest.raises(TypeError):
        mix().arguments["shift"] = 3


def test_calls_are_frozen():
    """A call's attributes cannot be set."""
    with pytest.raises(AttributeError):
        mix().op = torch.ops.aten.relu.default


def test_too_many_positional_arguments():
    """The error says how many the operator takes and how many were given."""
    with pytest.raises(BadArguments, match=r"nstest::mix.default: takes 4 positional arguments, given 5"):
        mix(X, [1], 1.0, 2, True)


def test_an_argument_given_twice():
    """The same argument by position and by name is refused."""
    with pytest.raises(BadArguments, match=r"'sizes' is given twice"):
        mix(X, [1], sizes=[2])


def test_missing_arguments_are_named():
    """All missing arguments are named at once."""
    with pytest.raises(BadArguments, match=r"missing argument\(s\) 'x', 'sizes'"):
        OpCall.bind("nstest::mix")


def test_unknown_arguments_come_with_a_suggestion():
    """A misspelled keyword is refused with the closest name and the known ones."""
    with pytest.raises(UnknownArgument, match=r"no argument 'modes' \(did you mean 'mode'\?\)") as caught:
        mix(modes="b")
    assert caught.value.known == tuple(mix().arguments)


def test_unknown_operators():
    """An operator that is not installed cannot be bound."""
    with pytest.raises(UnknownOperator):
        OpCall.bind("nstest::nope", (X,))


def test_replacing_returns_another_call():
    """Replacing leaves the call it is asked of alone."""
    call = mix()
    changed = call.replace(lens=[7])
    assert (call.arguments["lens"], changed.arguments["lens"]) == (None, [7])


def test_replacing_an_unknown_argument():
    """A name that the schema lacks is refused."""
    with pytest.raises(UnknownArgument):
        mix().replace(length=[7])


def test_an_argument_may_be_called_self():
    """Many ATen operators call their first argument `self`; it can be replaced like any other."""
    call = OpCall.bind("aten::relu", (-X,)).replace(self=X)
    assert torch.equal(call(), X)


def test_replacing_the_operator_takes_the_arguments_along():
    """The `.out` overload gets what was given to the default, by name."""
    call = OpCall.bind("nstest::single", (X, [4]))
    out = torch.empty(3)
    assert call.replace("nstest::single.out", out=out)() is out
    assert torch.equal(out, X + 40)


def test_replacing_the_operator_wants_the_new_arguments():
    """An overload that takes more cannot be made without it."""
    with pytest.raises(BadArguments, match=r"nstest::single.out: missing argument\(s\) 'out'"):
        OpCall.bind("nstest::single", (X, [4])).replace("nstest::single.out")


def test_replacing_the_operator_loses_nothing():
    """An argument that the other operator lacks is refused, not dropped."""
    with pytest.raises(BadArguments, match=r"cannot take over argument\(s\) lens of nstest::single.default"):
        OpCall.bind("nstest::single", (X, [4])).replace("nstest::_single_infer_output")


def test_defaults_are_not_taken_along():
    """Only what was given moves to another overload: its own defaults hold there."""
    call = OpCall.bind("nstest::_attn_get_max_workspace", (X,)).replace("nstest::attn", lens=[1])
    assert call.arguments["scale"] == 1.0


def test_trailing_defaults_are_not_emitted():
    """What was left at its default is not passed on, as the dispatcher does it."""
    assert mix(X, [1], mode="b").emit() == ([X, [1]], {"mode": "b"})


def test_a_default_before_a_given_argument_is_emitted():
    """A positional default in front of a value has to be written out."""
    assert mix(X, [1], 1.0, 3).emit() == ([X, [1], 1.0, 3], {})


def test_tensors_are_found_at_any_depth():
    """Tensors in lists are listed with the argument they stand in; None in a list is no tensor."""
    y = X + 1
    call = OpCall.bind("nstest::lists", ([X, y], [None, X]))
    assert [(name, id(tensor)) for name, tensor in call.tensors()] == [("xs", id(X)), ("xs", id(y)), ("maybe", id(X))]


def test_tensors_are_mapped_at_any_depth():
    """Mapping tensors reaches into lists and leaves everything else alone."""
    call = OpCall.bind("nstest::lists", ([X], [None, X]), {"lens": [3]}).map_tensors(lambda tensor: tensor + 1)
    assert torch.equal(call.arguments["xs"][0], X + 1)
    assert call.arguments["maybe"][0] is None
    assert call.arguments["lens"] == [3]


def test_an_operator_without_result_returns_none():
    """An operator that only writes runs, and gives None."""
    out = torch.zeros(3)
    call = OpCall.bind("nstest::fill", (X, torch.tensor([2]), torch.zeros(1), out))
    assert call() is None
    assert torch.equal(out, X + 20)


def test_a_call_is_shown_by_shapes():
    """A repr names the operator and what was given, tensors by dtype and shape and never by content."""
    call = OpCall.bind("nstest::lists", ([X], (None, X.long())), {"lens": [3]})
    assert repr(call) == "OpCall('nstest::lists.default', xs=[float32[3]], maybe=(None, int64[3]), lens=[3])"


def test_the_signature_is_the_schemas():
    """A call gives its operator's signature and qualified name."""
    call = mix()
    assert call.name == call.signature.op == "nstest::mix.default"
    assert toys.MIX.ops == (call.name,)
