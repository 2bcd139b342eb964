"""Laws of calls: binding, however spelled, is calling; replacing changes what it names and nothing else."""

from __future__ import annotations

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from npugraph_strategies import OpCall
from npugraph_strategies._names import resolve
from npugraph_strategies._schema import REQUIRED, signature_of
from npugraph_strategies.errors import BadArguments, UnknownArgument
from support import toys

QUICK = settings(max_examples=60, deadline=None)
MATRIX = torch.arange(6.0).reshape(2, 3)
IMAGE = torch.arange(32.0).reshape(1, 2, 4, 4)
tensors = st.sampled_from([MATRIX, MATRIX + 1, -MATRIX])
integers = st.integers(-3, 3)
lengths = st.lists(integers, max_size=3)
flags = st.booleans()

# By operator, a strategy for every argument; those with a default may be left out.
OPERATORS = {
    "aten::add.Tensor": {"self": tensors, "other": tensors, "alpha": integers},
    "aten::sum.dim_IntList": {
        "self": tensors,
        "dim": st.sampled_from([[0], [1], [0, 1], None]),
        "keepdim": flags,
        "dtype": st.sampled_from([None, torch.float64]),
    },
    "aten::addmm": {
        "self": st.just(torch.ones(2, 2)),
        "mat1": tensors,
        "mat2": st.just(MATRIX.t()),
        "beta": st.sampled_from([0, 1, 2.5]),
        "alpha": st.sampled_from([1, 0, -2]),
    },
    "aten::conv2d": {
        "input": st.just(IMAGE),
        "weight": st.just(torch.ones(2, 2, 2, 2)),
        "bias": st.sampled_from([None, torch.ones(2)]),
        "stride": st.sampled_from([[1, 1], [2, 1]]),
        "padding": st.sampled_from([[0, 0], [1, 1]]),
        "dilation": st.just([1, 1]),
        "groups": st.just(1),
    },
    "aten::cat": {"tensors": st.lists(tensors, min_size=1, max_size=3), "dim": st.sampled_from([0, 1, -1])},
    "aten::index.Tensor": {
        "self": tensors,
        "indices": st.sampled_from([[torch.tensor([1])], [None, torch.tensor([0, 2])]]),
    },
    "aten::std.correction": {
        "self": tensors,
        "dim": st.sampled_from([None, [0], [0, 1]]),
        "correction": st.sampled_from([None, 0, 0.5]),
        "keepdim": flags,
    },
    "aten::max.dim": {"self": tensors, "dim": st.sampled_from([0, 1]), "keepdim": flags},
    "aten::full": {"size": st.sampled_from([[2], [], [0, 3]]), "fill_value": integers, "dtype": st.just(torch.int64)},
    "nstest::mix": {
        "x": tensors,
        "sizes": lengths,
        "scale": st.sampled_from([1.0, 0.0, 2.5]),
        "shift": integers,
        "flag": flags,
        "mode": st.sampled_from(["a", "", "abc"]),
        "lens": st.none() | lengths,
        "extra": st.none() | tensors,
    },
    "nstest::lists": {
        "xs": st.lists(tensors, min_size=1, max_size=3),
        "maybe": st.lists(st.none() | tensors, max_size=3),
        "lens": st.none() | lengths,
        "pair": st.sampled_from([[1, 1], [0, 2]]),
    },
    "nstest::attn": {
        "q": tensors,
        "lens": lengths,
        "scale": st.sampled_from([1.0, 0.5]),
        "heads": st.integers(1, 3),
        "other": st.none() | lengths,
    },
}


@st.composite
def spellings(draw):
    """Draw an operator, its arguments by name, and one way to spell the call."""
    name = draw(st.sampled_from(sorted(OPERATORS)))
    signature = signature_of(resolve(name))
    given_ = {}
    for argument in signature.arguments.values():
        if argument.name in OPERATORS[name] and (argument.default is REQUIRED or draw(flags)):
            given_[argument.name] = draw(OPERATORS[name][argument.name])
    positional = [argument.name for argument in signature.positional]
    longest = next((i for i, n in enumerate(positional) if n not in given_), len(positional))
    split = draw(st.integers(0, longest))
    by_name = draw(st.permutations([n for n in given_ if n not in positional[:split]]))
    return name, tuple(given_[n] for n in positional[:split]), {n: given_[n] for n in by_name}


def same(left, right):
    """Compare results, which are tensors or tuples of them."""
    torch.testing.assert_close(left, right, rtol=0, atol=0)


class Seen(TorchDispatchMode):
    """Notes what the dispatcher hands to a mode for one operator."""

    def __init__(self, op):
        super().__init__()
        self.op, self.calls = op, []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is self.op:
            self.calls.append((args, kwargs or {}))
        return func(*args, **(kwargs or {}))


@settings(QUICK, max_examples=250)
@given(spellings())
def test_binding_is_calling(spelled):
    """A bound call gives what the operator gives, for every split into positions and keywords."""
    name, args, kwargs = spelled
    same(OpCall.bind(name, args, kwargs)(), resolve(name)(*args, **kwargs))


@QUICK
@given(spellings())
def test_every_spelling_binds_the_same(spelled):
    """All arguments by name bind to the same call, with nothing but defaults added."""
    name, args, kwargs = spelled
    names = [argument.name for argument in signature_of(resolve(name)).positional]
    call = OpCall.bind(name, args, kwargs)
    by_name = OpCall.bind(name, (), {**dict(zip(names, args, strict=False)), **kwargs})
    assert list(call.arguments) == list(by_name.arguments)
    assert all(call.arguments[n] is by_name.arguments[n] for n in call.arguments)


@QUICK
@given(spellings())
def test_what_the_dispatcher_shows_binds_to_the_same_call(spelled):
    """A mode sees the call in the dispatcher's own spelling, without defaults; binding that gives the same result."""
    name, args, kwargs = spelled
    op = resolve(name)
    with Seen(op) as seen:
        result = op(*args, **kwargs)
    for shown_args, shown_kwargs in seen.calls:  # a composite operator is taken apart before a mode sees it
        same(OpCall.bind(op, shown_args, shown_kwargs)(), result)


@QUICK
@given(spellings())
def test_emitting_and_binding_again(spelled):
    """What a call emits binds to the same call."""
    call = OpCall.bind(*spelled)
    args, kwargs = call.emit()
    again = OpCall.bind(call.op, tuple(args), kwargs)
    assert all(again.arguments[n] is call.arguments[n] for n in call.arguments)


@QUICK
@given(spellings(), st.data())
def test_replacing_changes_what_it_names(spelled, data):
    """Replacing one argument leaves all others the same objects, in another call."""
    name, args, kwargs = spelled
    call = OpCall.bind(name, args, kwargs)
    changed = data.draw(st.sampled_from(sorted(OPERATORS[name])))
    value = data.draw(OPERATORS[name][changed])
    before = dict(call.arguments)
    new = call.replace(**{changed: value})
    assert new.arguments[changed] is value
    assert all(new.arguments[n] is before[n] for n in before if n != changed)
    assert dict(call.arguments).keys() == before.keys()
    assert all(call.arguments[n] is before[n] for n in before)


@QUICK
@given(spellings())
def test_mapping_by_identity_changes_nothing(spelled):
    """Mapping arguments or tensors to themselves gives a call with the same result."""
    call = OpCall.bind(*spelled)
    same(call.map(lambda _, value: value)(), call())
    same(call.map_tensors(lambda tensor: tensor)(), call())


@QUICK
@given(spellings(), st.data())
def test_wrong_spellings_are_refused(spelled, data):
    """Too many, doubled, unknown and missing arguments are refused where the operator would refuse them."""
    name, args, kwargs = spelled
    op = resolve(name)
    positional = [argument.name for argument in signature_of(op).positional]
    required = [a.name for a in signature_of(op).arguments.values() if a.default is REQUIRED]
    absent = data.draw(st.sampled_from(required))
    by_name = {**dict(zip(positional, args, strict=False)), **kwargs}
    spoiled = {
        "unknown": (args, {**kwargs, "no_such_argument": 1}, UnknownArgument),
        "missing": ((), {n: v for n, v in by_name.items() if n != absent}, BadArguments),
        "too many": ((*args, *[1] * (len(positional) - len(args) + 1)), {}, BadArguments),
    }
    if args:
        spoiled["doubled"] = (args, {**kwargs, positional[0]: args[0]}, BadArguments)
    for wrong_args, wrong_kwargs, error in spoiled.values():
        with pytest.raises(error):
            OpCall.bind(op, wrong_args, wrong_kwargs)
        with pytest.raises((RuntimeError, TypeError)):
            op(*wrong_args, **wrong_kwargs)


@example(toys.ATTN.ops[0])
@given(st.sampled_from(sorted(OPERATORS)))
def test_the_name_leads_back_to_the_operator(name):
    """A call's name resolves to its operator."""
    op = resolve(name)
    assert resolve(signature_of(op).op) is op
