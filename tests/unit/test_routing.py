"""Routing: which record gets which values, and every way in which that can go wrong."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from npugraph_strategies import KEEP, by_label, each
from npugraph_strategies._handlers import updatable
from npugraph_strategies._routing import route
from npugraph_strategies.errors import (
    AmbiguousUpdate,
    MissingValues,
    UnknownLabel,
    UnknownParameter,
    WrongCount,
)
from support import toys


@attrs.frozen
class Line:
    """A record as far as routing looks at it."""

    label: str
    handler: Any

    @property
    def op(self):
        return self.handler.ops[0]


ATTN0 = Line("layers.0.attn#0", toys.ATTN)
FILL1 = Line("layers.1.attn#0", toys.FILL)
ATTN1 = Line("layers.1.attn#1", toys.ATTN)
LINES = [ATTN0, FILL1, ATTN1]
ATTNS = [ATTN0, ATTN1]


def test_a_mapping_is_broadcast():
    """A mapping goes to every record that declares the name."""
    assert route(LINES, {"lens": [3]}, None) == [{"lens": [3]}] * 3


def test_a_mapping_is_split_by_declared_names():
    """Mixed operators get those names that they declare."""
    routed = route(LINES, {"lens": [3], "table": "t", "other": [4]}, None)
    assert routed == [{"lens": [3], "other": [4]}, {"lens": [3], "table": "t"}, {"lens": [3], "other": [4]}]


def test_a_name_that_no_record_declares():
    """A misspelled name is refused with a suggestion and what is declared."""
    with pytest.raises(UnknownParameter, match=r"did you mean 'lens'") as caught:
        route(LINES, {"lense": [3]}, None)
    assert caught.value.known == ("lens", "other", "table")


def test_an_argument_that_is_no_parameter():
    """An argument of the operator that is not declared cannot be updated."""
    with pytest.raises(UnknownParameter):
        route(ATTNS, {"scale": 2.0}, KEEP)


def test_a_broadcast_that_leaves_a_record_out():
    """A record that declares none of the names gets nothing, which is an error that names it."""
    with pytest.raises(MissingValues) as caught:
        route(LINES, {"table": "t"}, None)
    assert caught.value.labels == ("layers.0.attn#0", "layers.1.attn#1")


def test_the_rest_may_keep_their_values():
    """With `rest=KEEP`, records that get nothing keep what they have."""
    assert route(LINES, {"table": "t"}, KEEP) == [{}, {"table": "t"}, {}]


def test_an_empty_mapping():
    """Nothing for anybody is an error, unless it is asked for."""
    with pytest.raises(MissingValues):
        route(LINES, {}, None)
    assert route(LINES, {}, KEEP) == [{}, {}, {}]


def test_no_records():
    """A graph without records takes an empty update and no other."""
    assert route([], {}, None) == []
    with pytest.raises(UnknownParameter, match="no captured operator has a handler"):
        route([], {"lens": [3]}, KEEP)


def test_each_pairs_up():
    """The n-th mapping goes to the n-th record."""
    assert route(ATTNS, each([{"lens": [1]}, {"lens": [2]}]), None) == [{"lens": [1]}, {"lens": [2]}]


def test_each_takes_an_iterator():
    """Mappings may be generated."""
    assert route(ATTNS, each({"lens": [n]} for n in range(2)), None) == [{"lens": [0]}, {"lens": [1]}]


@pytest.mark.parametrize("values", [{"lens": [1]}, "lens", 3, None], ids=repr)
def test_each_of_something_else(values):
    """A mapping is not taken for a list of its keys."""
    with pytest.raises(TypeError, match="each wants a list of mappings, one per record in capture order; given"):
        each(values)


@pytest.mark.parametrize("values", [[{"lens": [1]}], "lens", None], ids=repr)
def test_labels_of_something_else(values):
    """Only a mapping has patterns."""
    with pytest.raises(TypeError, match="by_label wants a mapping of label patterns to mappings or KEEP; given"):
        by_label(values)


def test_each_may_keep_one():
    """A record may be told to keep its values, without `rest`."""
    assert route(ATTNS, each([KEEP, {"lens": [2]}]), None) == [{}, {"lens": [2]}]


@pytest.mark.parametrize("items", [[], [{"lens": [1]}], [{"lens": [1]}] * 3])
def test_a_wrong_count(items):
    """The error says how many were expected and given, and lists the records."""
    with pytest.raises(WrongCount) as caught:
        route(ATTNS, each(items), KEEP)
    assert (caught.value.expected, caught.value.given) == (2, len(items))
    assert caught.value.labels == ("layers.0.attn#0", "layers.1.attn#1")


def test_each_with_an_empty_mapping():
    """An empty mapping for one record is an error unless the rest is to keep."""
    with pytest.raises(MissingValues, match=r"layers\.1\.attn#1"):
        route(ATTNS, each([{"lens": [1]}, {}]), None)
    assert route(ATTNS, each([{"lens": [1]}, {}]), KEEP) == [{"lens": [1]}, {}]


def test_each_with_a_name_of_another_record():
    """A name has to be declared by the very record that gets it."""
    with pytest.raises(UnknownParameter, match=r"record 'layers.0.attn#0' \(nstest::attn.default\)"):
        route(ATTNS, each([{"table": "t"}, {"lens": [2]}]), None)


@pytest.mark.parametrize("item", [None, [3], 3, "lens"])
def test_each_with_something_else(item):
    """An item that is no mapping is refused, naming the record."""
    with pytest.raises(TypeError, match=r"layers\.1\.attn#1"):
        route(ATTNS, each([{"lens": [1]}, item]), None)


def test_labels_route():
    """Each pattern's mapping goes to the records whose module path matches, in any order."""
    values = by_label({"layers.1.*": {"lens": [2]}, "layers.0.*": {"lens": [1]}})
    assert route(LINES, values, None) == [{"lens": [1]}, {"lens": [2]}, {"lens": [2]}]


def test_a_number_addresses_one_call():
    """With a number, a pattern is compared with the whole label."""
    values = by_label({"layers.*.attn#1": {"lens": [2]}})
    assert route(LINES, values, KEEP) == [{}, {}, {"lens": [2]}]


@pytest.mark.parametrize("pattern", ["layers.?.attn", "layers.[01].attn", "*", "*#*"])
def test_wildcards(pattern):
    """A pattern may use the wildcards of file names."""
    assert route(ATTNS, by_label({pattern: {"lens": [1]}}), None) == [{"lens": [1]}] * 2


def test_case_counts():
    """A label is matched as it is written."""
    with pytest.raises(UnknownLabel):
        route(ATTNS, by_label({"Layers.*": {"lens": [1]}}), None)


def test_the_outermost_module_has_an_empty_path():
    """An empty pattern addresses calls outside any inner module, and only those."""
    lines = [Line("#0", toys.ATTN), ATTN0]
    assert route(lines, by_label({"": {"lens": [1]}}), KEEP) == [{"lens": [1]}, {}]


def test_a_pattern_that_matches_nothing():
    """It is an error that lists the labels, with a suggestion."""
    with pytest.raises(UnknownLabel, match=r"did you mean 'layers.0.attn#0'") as caught:
        route(LINES, by_label({"layers.0.atn#0": {"lens": [1]}}), KEEP)
    assert caught.value.labels == tuple(line.label for line in LINES)


def test_patterns_for_different_names_combine():
    """Two patterns may give one record different parameters."""
    values = by_label({"layers.*": {"lens": [1]}, "layers.0.*": {"other": [2]}})
    assert route(ATTNS, values, None) == [{"lens": [1], "other": [2]}, {"lens": [1]}]


def test_patterns_for_one_name_collide():
    """Two patterns that give one record the same parameter are ambiguous, even with equal values."""
    with pytest.raises(AmbiguousUpdate) as caught:
        route(ATTNS, by_label({"layers.*": {"lens": [1]}, "layers.0.*": {"lens": [1]}}), None)
    assert (caught.value.label, caught.value.name) == ("layers.0.attn#0", "lens")
    assert caught.value.patterns == ("layers.*", "layers.0.*")


def test_labels_with_an_undeclared_name():
    """A name has to be declared by some record that the pattern addresses; only those that declare it get it."""
    with pytest.raises(UnknownParameter, match=r"any record that '\*' matches"):
        route(LINES, by_label({"*": {"tables": "t"}}), KEEP)
    got = route(LINES, by_label({"*": {"table": "t"}}), KEEP)
    assert got == [{"table": "t"} if "table" in updatable(line.handler) else {} for line in LINES]


def test_labels_leave_records_out():
    """Records that no pattern addresses are missing, unless the rest is to keep."""
    values = by_label({"layers.0.*": {"lens": [1]}})
    with pytest.raises(MissingValues):
        route(ATTNS, values, None)
    assert route(ATTNS, values, KEEP) == [{"lens": [1]}, {}]


def test_a_callable_is_asked_for_each_record():
    """A function of the record gives its mapping."""
    routed = route(ATTNS, lambda line: {"lens": [int(line.label[7])]}, None)
    assert routed == [{"lens": [0]}, {"lens": [1]}]


def test_a_callable_may_keep():
    """A function may tell a record to keep its values."""
    assert route(ATTNS, lambda line: KEEP if line is ATTN0 else {"lens": [1]}, None) == [{}, {"lens": [1]}]


def test_a_callable_that_returns_nothing():
    """Forgetting to return a mapping is an error that names the record."""
    with pytest.raises(TypeError, match=r"layers\.0\.attn#0.*given None"):
        route(ATTNS, lambda line: None, KEEP)  # noqa: ARG005 - the shape of a router


def test_a_callable_with_an_undeclared_name():
    """Names are checked for what a function returns, too."""
    with pytest.raises(UnknownParameter):
        route(ATTNS, lambda line: {"label": line.label}, KEEP)


def test_an_error_in_a_callable_goes_through():
    """A function's own error is the caller's to see."""
    with pytest.raises(ZeroDivisionError):
        route(ATTNS, lambda line: {"lens": 1 // 0}, None)  # noqa: ARG005 - the shape of a router


@pytest.mark.parametrize("values", [[{"lens": [1]}], None, 3, "lens", KEEP], ids=repr)
def test_other_forms(values):
    """A bare list, in particular, does not say how it is meant."""
    with pytest.raises(TypeError, match=r"each\(\[\.\.\.\]\)"):
        route(ATTNS, values, KEEP)


def test_routing_leaves_the_callers_mappings_alone():
    """Nothing that the caller passed in is changed."""
    first, second = {"lens": [1]}, {"other": [2]}
    route(ATTNS, by_label({"*": first, "layers.0.*": second}), KEEP)
    assert (first, second) == ({"lens": [1]}, {"other": [2]})


def test_the_forms_are_values():
    """What `each` and `by_label` return is comparable and shows how to write it."""
    assert each([KEEP]) == each([KEEP])
    assert repr(each([{"lens": [1]}, KEEP])) == "Each(items=({'lens': [1]}, KEEP))"
    assert by_label({"a": {}}) == by_label({"a": {}})
