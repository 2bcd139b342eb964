"""Registries: built, looked into and changed as values."""

from __future__ import annotations

import copy

import attrs
import pytest
import torch

from npugraph_strategies import HandlerRegistry, OutVariant, UpdateParams
from npugraph_strategies.errors import (
    InvalidHandler,
    NotRegistered,
    RegistryConflict,
    RegistryError,
    UnknownOperator,
)
from npugraph_strategies.handlers import ATTENTION, FIA_V1, PAGED_ATTENTION, OpHandler
from support import toys

ROPE = UpdateParams("my::rope", "positions")
OTHER_ROPE = UpdateParams("my::rope", "offsets")
CONV = UpdateParams("my::conv", "starts")
BOTH = UpdateParams(("my::rope", "my::conv"), "starts")


HOOKS = [name for name, member in vars(OpHandler).items() if callable(member) and not name.startswith("_")]


@attrs.frozen
class Foreign(UpdateParams):
    """A handler of someone else's class, which spells its names in its own way."""

    ops: tuple = ("my::rope",)
    params: tuple = ("positions",)
    rebind: tuple = ()


class Hookless:
    """What has the names of a handler, and none of its hooks."""

    ops = ("my::rope",)
    params = ("positions",)
    rebind = ()


class Own(Hookless):
    """A handler that inherits nothing from the library."""

    should_handle = prepare_capture = postprocess_result = record_wrap_kwarg = print
    validate_update = update_args = prepare_update = print


class WithoutRebind(Own):
    """A handler that forgot one of its three tuples."""

    rebind = property()


class Unhashable(UpdateParams):
    """A handler that compares in its own way, and so has no hash."""

    def __eq__(self, other):
        return self is other

    __hash__ = None


@pytest.mark.parametrize(
    "spelling",
    ["nstest::attn", "nstest::attn.default", torch.ops.nstest.attn, torch.ops.nstest.attn.default],
    ids=["short", "full", "packet", "overload"],
)
def test_lookup_in_every_spelling(spelling):
    """Strings, packets and overloads find the same handler."""
    registry = HandlerRegistry.of(toys.ATTN, ROPE)
    assert registry[spelling] is registry.find(spelling) is toys.ATTN
    assert spelling in registry
    assert len(registry.without(spelling)) == 1


def test_overloads_count():
    """An overload that no handler names is not served."""
    assert "nstest::attn.other" not in HandlerRegistry.of(toys.ATTN)


def test_namespaces_count():
    """The same name in another namespace is another operator."""
    registry = HandlerRegistry.of(ROPE)
    assert "your::rope" not in registry
    assert len(registry | HandlerRegistry.of(UpdateParams("your::rope", "offsets"))) == 2


def test_two_handlers_of_one_operator():
    """A conflict names the operator and shows both handlers."""
    with pytest.raises(RegistryConflict) as caught:
        HandlerRegistry.of(ROPE, OTHER_ROPE)
    assert caught.value.op == "my::rope.default"
    assert {caught.value.first, caught.value.second} == {ROPE, OTHER_ROPE}
    assert "override" in str(caught.value)


def test_a_conflict_between_spellings():
    """Two handlers conflict even if one spells the operator without its overload."""
    with pytest.raises(RegistryConflict):
        HandlerRegistry.of(Foreign(), ROPE)


NO_OPS = "which has no ops"


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        pytest.param(3, NO_OPS, id="int"),
        pytest.param("my::rope", NO_OPS, id="name"),
        pytest.param(torch.ops.aten.add, NO_OPS, id="packet"),
        pytest.param(ATTENTION, "which is a registry: registries are joined with |", id="registry"),
        pytest.param(UpdateParams, "which is a class: give an instance of it", id="class"),
        pytest.param([ROPE, CONV], "which is a container: give handlers one by one", id="list"),
        pytest.param((ROPE,), "which is a container: give handlers one by one", id="tuple"),
        pytest.param(Foreign(ops="my::rope"), "whose ops is not a tuple of names: 'my::rope'", id="ops-string"),
        pytest.param(Foreign(ops=["my::rope"]), "whose ops is not a tuple of names: ['my::rope']", id="ops-list"),
        pytest.param(Foreign(ops=(3,)), "whose ops is not a tuple of names: (3,)", id="ops-of-ints"),
        pytest.param(Foreign(ops=()), "which serves no operator", id="ops-empty"),
        pytest.param(Foreign(params="lens"), "whose params is not a tuple of names: 'lens'", id="params-string"),
        pytest.param(Foreign(rebind="table"), "whose rebind is not a tuple of names: 'table'", id="rebind-string"),
        pytest.param(WithoutRebind(), "which has no rebind", id="rebind-missing"),
        pytest.param(
            Hookless(),
            f"which lacks {', '.join(HOOKS)}: subclass UpdateParams or OutVariant to inherit them",
            id="hooks-missing",
        ),
        pytest.param(
            Unhashable("my::rope", "lens"),
            "which cannot be hashed (unhashable type: 'Unhashable'): handlers are values, make it frozen",
            id="unhashable",
        ),
    ],
)
def test_what_is_no_handler(wrong, problem):
    """What cannot serve as a handler is refused where the registry is built, with the reason."""
    with pytest.raises(InvalidHandler) as caught:
        HandlerRegistry.of(ROPE, wrong)
    assert str(caught.value) == f"a registry holds handlers; given {wrong!r}, {problem}"
    assert isinstance(caught.value, RegistryError)
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("hook", HOOKS)
def test_a_handler_has_every_hook(hook):
    """An object that lacks a single hook of the protocol is refused by that hook's name."""
    lacking = type("Lacking", (Foreign,), {hook: None})()
    with pytest.raises(InvalidHandler, match=f"which lacks {hook}: subclass"):
        HandlerRegistry.of(lacking)


def test_no_way_leads_around_the_refusal():
    """The constructor and `override` refuse what `of` refuses."""
    with pytest.raises(InvalidHandler):
        HandlerRegistry((ROPE, Hookless()))
    with pytest.raises(InvalidHandler):
        HandlerRegistry.of(ROPE).override(Hookless())


def test_a_handler_need_not_inherit():
    """An object of any class that has the names and the hooks is a handler."""
    own = Own()
    assert HandlerRegistry.of(own)["my::rope.default"] is own


@pytest.mark.parametrize("join", [lambda: ATTENTION | ROPE, lambda: ROPE | ATTENTION], ids=["right", "left"])
def test_a_handler_is_put_into_a_registry_first(join):
    """A handler is not added with `|`, and the error says how it is."""
    with pytest.raises(TypeError, match=r"given the handler UpdateParams\(.*: wrap it in HandlerRegistry\.of"):
        join()


@pytest.mark.parametrize("other", [None, [ROPE], "my::rope"], ids=repr)
def test_or_takes_registries_only(other):
    """Anything else is no operand of `|` on either side."""
    with pytest.raises(TypeError, match="unsupported operand"):
        ATTENTION | other
    with pytest.raises(TypeError, match="unsupported operand"):
        other | ATTENTION


def test_or_leaves_room_for_foreign_operators():
    """A class that knows registries may define what `|` means with them."""

    class Knows:
        def __ror__(self, registry):
            return len(registry)

    assert ATTENTION | Knows() == len(ATTENTION)


def test_override_replaces():
    """The new handler takes the operator over, and the receiver stays as it was."""
    registry = HandlerRegistry.of(ROPE, CONV)
    new = registry.override(OTHER_ROPE)
    assert new["my::rope"] == OTHER_ROPE
    assert new["my::conv"] == CONV
    assert registry["my::rope"] == ROPE


def test_override_by_another_spelling():
    """A foreign handler replaces the one of the same operator, however it spells it."""
    assert HandlerRegistry.of(ROPE).override(Foreign())["my::rope.default"] == Foreign()
    assert HandlerRegistry.of(Foreign()).override(ROPE)["my::rope.default"] == ROPE


def test_override_wants_something_to_replace():
    """A handler whose operators nobody serves is added with `|`, not with `override`."""
    with pytest.raises(NotRegistered, match=r"my::conv"):
        HandlerRegistry.of(CONV).override(ROPE)


def test_override_leaves_no_operator_unserved():
    """A handler of two operators is not replaced by one of a single one."""
    with pytest.raises(RegistryConflict) as caught:
        HandlerRegistry.of(BOTH).override(ROPE)
    assert caught.value.op == "my::conv.default"


def test_override_by_several():
    """Handlers that together serve what was served replace a handler of several operators."""
    assert HandlerRegistry.of(BOTH).override(ROPE, CONV) == HandlerRegistry.of(ROPE, CONV)


def test_override_of_several():
    """One handler may replace several."""
    assert HandlerRegistry.of(ROPE, CONV).override(BOTH) == HandlerRegistry.of(BOTH)


def test_override_with_conflicting_handlers():
    """Two replacements of one operator conflict: the last one does not simply win."""
    with pytest.raises(RegistryConflict):
        HandlerRegistry.of(ROPE).override(OTHER_ROPE, Foreign(params=("x",)))


def test_override_may_serve_more():
    """A replacement may serve operators that nobody served before."""
    assert HandlerRegistry.of(ROPE).override(BOTH)["my::conv"] == BOTH


def test_override_does_not_take_over_a_third():
    """A replacement that also serves another handler's operator replaces that handler as well, completely."""
    registry = HandlerRegistry.of(ROPE, UpdateParams(("my::conv", "my::norm"), "starts"))
    with pytest.raises(RegistryConflict, match=r"my::norm"):
        registry.override(BOTH)


@pytest.mark.parametrize("entry", [ROPE, "my::rope", "my::rope.default"])
def test_without(entry):
    """A handler is removed by itself or by its operator."""
    registry = HandlerRegistry.of(ROPE, CONV)
    assert list(registry.without(entry)) == [CONV]
    assert len(registry) == 2


def test_without_nothing():
    """Removing nothing gives an equal registry."""
    assert ATTENTION.without() == ATTENTION


@pytest.mark.parametrize("entry", [OTHER_ROPE, "my::rotary", 3, None])
def test_without_what_is_not_there(entry):
    """Removing what is not there is an error that lists what is."""
    with pytest.raises(NotRegistered, match=r"my::rope.default"):
        HandlerRegistry.of(ROPE).without(entry)


def test_indexing_what_is_not_there():
    """Indexing raises with a suggestion, `find` gives None."""
    registry = HandlerRegistry.of(ROPE)
    with pytest.raises(NotRegistered, match=r"did you mean 'my::rope.default'"):
        registry["my::rop"]
    assert registry.find("my::rop") is None


def test_membership_of_other_things():
    """A thing that is neither handler nor operator is not served; a misspelled operator is an error."""
    registry = HandlerRegistry.of(ROPE)
    assert ROPE in registry
    assert OTHER_ROPE not in registry
    assert 3 not in registry
    with pytest.raises(UnknownOperator):
        "rope" in registry  # noqa: B015 - it raises


def test_the_table_is_a_copy():
    """The table is keyed as the dispatcher names operators, and changing it changes nothing else."""
    table = ATTENTION.table
    assert table["npu::npu_fused_infer_attention_score"] is FIA_V1
    assert table["npu::npu_fused_infer_attention_score.out"] is FIA_V1
    table.clear()
    assert ATTENTION.table


def test_operators_are_sorted():
    """All operators served are listed by qualified name, in order."""
    assert HandlerRegistry.of(ROPE, CONV, Foreign(ops=("a::b",))).ops == (
        "a::b.default",
        "my::conv.default",
        "my::rope.default",
    )


def test_a_registry_is_a_collection():
    """It is iterated in order, has a length, and is false when empty."""
    registry = HandlerRegistry.of(ROPE, CONV)
    assert list(registry) == [CONV, ROPE]
    assert len(registry) == 2
    assert not HandlerRegistry()


def test_a_registry_is_frozen():
    """Nothing can be set or deleted."""
    with pytest.raises(AttributeError):
        ATTENTION.handlers = ()


def test_a_registry_can_be_copied():
    """Deep and shallow copies are equal."""
    assert copy.deepcopy(ATTENTION) == copy.copy(ATTENTION) == ATTENTION


def test_handlers_without_evaluating_repr_are_held():
    """A handler of any class is held as long as it is hashable."""

    class Subclass(OutVariant):
        pass

    handler = Subclass(("my::a", "my::a.out"), "lengths")
    assert HandlerRegistry.of(handler)["my::a.out"] is handler


def test_the_builtin_registry():
    """The shipped registry serves the four attention families."""
    assert PAGED_ATTENTION in ATTENTION
    assert len(ATTENTION) == 4
    assert len(ATTENTION.ops) == 9
