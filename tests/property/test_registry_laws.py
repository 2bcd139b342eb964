"""Laws of registries: a union is a union of sets, whatever the order, and nothing is ever changed in place."""

from __future__ import annotations

import pickle

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from npugraph_strategies import HandlerRegistry, OutVariant, UpdateParams, handlers
from npugraph_strategies._names import dispatch_name, qualified_name
from npugraph_strategies.errors import NotRegistered, RegistryConflict
from npugraph_strategies.handlers import (
    ATTENTION,
    AttentionLengths,
    EmptyLike,
    GrowingWorkspace,
    HelperOutputs,
    MaxWorkspace,
    NoWorkspace,
)

QUICK = settings(max_examples=60, deadline=None)
OPS = [f"{namespace}::{name}" for namespace in ("a", "b") for name in ("x", "y", "y.out")]
NAMES = st.sampled_from(["lengths", "starts", "table"])
WORKSPACES = st.sampled_from([NoWorkspace(), MaxWorkspace("a::size"), GrowingWorkspace("a::size", grow=False)])
RULES = st.sampled_from([(), AttentionLengths(query="q", kv="kv")])
OUTPUTS = st.sampled_from([(), (EmptyLike("out", like="q"),), (HelperOutputs("a::infer"),)])

update_params = st.builds(
    UpdateParams,
    st.lists(st.sampled_from(OPS), min_size=1, max_size=2),
    st.lists(NAMES, max_size=2),
    rebind=st.lists(NAMES, max_size=1),
    lengths=RULES,
    workspace=WORKSPACES,
)
out_variants = st.builds(
    OutVariant,
    st.sampled_from([("a::y", "a::y.out"), ("b::y", "b::y.out")]),
    NAMES,
    workspace=WORKSPACES,
    outputs=OUTPUTS,
)
any_handlers = update_params | out_variants


def serves(handler):
    return {qualified_name(op) for op in handler.ops}


@st.composite
def registries(draw):
    """Draw a registry of handlers with disjoint operators."""
    chosen = []
    for handler in draw(st.lists(any_handlers, max_size=4)):
        if all(serves(handler).isdisjoint(serves(other)) for other in chosen):
            chosen.append(handler)
    return HandlerRegistry(tuple(chosen))


def joined(left, right):
    """Return the union, or the operator that two handlers fight over."""
    try:
        return left | right
    except RegistryConflict as conflict:
        return conflict.op


@QUICK
@given(registries(), registries())
def test_union_is_commutative(left, right):
    """The order of a union does not matter, for what it gives and for whether it conflicts."""
    one, other = joined(left, right), joined(right, left)
    assert isinstance(one, str) == isinstance(other, str)
    if not isinstance(one, str):
        assert one == other
        assert hash(one) == hash(other)
        assert repr(one) == repr(other)


@QUICK
@given(registries(), registries(), registries())
def test_union_is_associative(a, b, c):
    """How a union is bracketed does not matter."""
    ab, bc = joined(a, b), joined(b, c)
    left = ab if isinstance(ab, str) else joined(ab, c)
    right = bc if isinstance(bc, str) else joined(a, bc)
    assert isinstance(left, str) == isinstance(right, str)
    assert isinstance(left, str) or left == right


@QUICK
@given(registries())
def test_union_is_idempotent_with_an_identity(registry):
    """A registry joined with itself, or with the empty one, is the same."""
    assert registry | registry == registry
    assert registry | HandlerRegistry() == HandlerRegistry() | registry == registry


@QUICK
@given(registries(), registries())
def test_conflicts_are_about_shared_operators(left, right):
    """Two registries conflict exactly if an operator has different handlers in them."""
    fought = {op for op in left.ops if right.find(op) not in {None, left[op]}}
    union = joined(left, right)
    assert (union in fought) if isinstance(union, str) else not fought


@QUICK
@given(registries(), registries())
def test_a_union_serves_what_its_parts_serve(left, right):
    """Every operator keeps its handler in a union."""
    union = joined(left, right)
    assume(not isinstance(union, str))
    assert set(union.ops) == {*left.ops, *right.ops}
    assert all(union[op] == part[op] for part in (left, right) for op in part.ops)


@QUICK
@given(registries(), st.lists(any_handlers, min_size=1, max_size=2))
def test_override_leaves_its_receiver_alone(registry, replacements):
    """Whether it succeeds or not, `override` changes nothing; when it does, the new handlers serve their operators."""
    before, table = repr(registry), registry.table
    try:
        new = registry.override(*replacements)
    except (RegistryConflict, NotRegistered):
        pass
    else:
        assert all(new[op] == handler for handler in replacements for op in handler.ops)
        assert set(new.ops) >= set(registry.ops)
        untouched = [h for h in registry if all(serves(h).isdisjoint(serves(r)) for r in replacements)]
        assert all(handler in new for handler in untouched)
    assert (repr(registry), registry.table) == (before, table)


@QUICK
@given(registries())
def test_overriding_with_itself_changes_nothing(registry):
    """Replacing every handler by itself gives an equal registry, in any grouping."""
    assert registry.override(*registry) == registry
    for handler in registry:
        assert registry.override(handler) == registry


@QUICK
@given(registries(), st.data())
def test_removing_is_the_opposite_of_adding(registry, data):
    """Without one of its handlers, and with it again, a registry is what it was."""
    assume(len(registry))
    handler = data.draw(st.sampled_from(registry.handlers))
    less = registry.without(handler)
    assert handler not in less
    assert registry.without(handler.ops[0]) == less
    assert less | HandlerRegistry.of(handler) == registry
    with pytest.raises(NotRegistered):
        less.without(handler)


@QUICK
@given(registries())
@example(ATTENTION)
@example(HandlerRegistry())
def test_pickle_and_repr_round_trip(registry):
    """A registry of data survives pickling, and its repr evaluates to an equal one."""
    back = pickle.loads(pickle.dumps(registry))  # noqa: S301 - our own bytes
    assert back == registry
    assert hash(back) == hash(registry)
    assert back.table == registry.table
    assert eval(repr(registry), {**vars(handlers)}) == registry  # noqa: S307 - our own repr


@QUICK
@given(registries().flatmap(lambda registry: st.tuples(st.just(registry), st.permutations(registry.handlers))))
def test_equality_does_not_depend_on_order(pair):
    """The same handlers in any order, given once or twice, make equal registries with equal hashes."""
    registry, shuffled = pair
    again = HandlerRegistry.of(*shuffled, *shuffled)
    assert again == registry
    assert hash(again) == hash(registry)
    assert list(again) == list(registry)


@QUICK
@given(registries(), st.sampled_from(OPS))
def test_lookup_is_equal_for_every_spelling(registry, op):
    """The short name, the qualified name and the table's key find the same handler."""
    found = registry.find(op)
    assert found is registry.find(qualified_name(op))
    assert found is registry.table.get(dispatch_name(op))
    assert (op in registry) is (found is not None) is (qualified_name(op) in registry.ops)


@QUICK
@given(registries(), registries())
def test_equal_registries_are_those_with_equal_tables(left, right):
    """Registries are equal exactly if every operator has an equal handler."""
    assert (left == right) is (left.table == right.table)
