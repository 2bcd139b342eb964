"""Operator names: every spelling means one canonical name."""

from __future__ import annotations

import pytest
import torch

from npugraph_strategies._names import dispatch_name, installed_overloads, is_installed, qualified_name, resolve
from npugraph_strategies._schema import REQUIRED, signature_of
from npugraph_strategies.errors import UnknownOperator
from support import toys  # defines nstest::

ADD = torch.ops.aten.add
NSTEST = toys.LIBRARY.ns


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        ("aten::add.Tensor", "aten::add.Tensor"),
        (ADD.Tensor, "aten::add.Tensor"),
        ("aten::relu", "aten::relu.default"),
        ("aten::relu.default", "aten::relu.default"),
        (torch.ops.aten.relu, "aten::relu.default"),
        (torch.ops.aten.relu.default, "aten::relu.default"),
        (torch.ops.aten.__and__.Tensor, "aten::__and__.Tensor"),
        ("not_here::at_all", "not_here::at_all.default"),
    ],
)
def test_spellings(spelling, name):
    """Strings, packets and overloads are normalised the same way; a packet means its default overload."""
    assert qualified_name(spelling) == name


@pytest.mark.parametrize(
    "spelling",
    ["", "add", "::add", "aten::", "aten::.out", "aten::add.", "aten::add.a.b", "a.b::add", 3, None, torch.add],
)
def test_misspelled_names(spelling):
    """What cannot be an operator's name is an error that shows how to write one."""
    with pytest.raises(UnknownOperator, match="namespace::name"):
        qualified_name(spelling)


def test_dispatch_name_is_the_name_a_mode_sees():
    """For every overload that torch registers, the table's key is `OpOverload.name()`."""
    for schema in torch._C._jit_get_all_schemas()[::7]:
        spelled = f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name
        assert dispatch_name(qualified_name(spelled)) == spelled


def test_resolving_gives_the_overload_itself():
    """A name, and the overload, resolve to the same object."""
    assert resolve("aten::add.Tensor") is ADD.Tensor
    assert resolve(ADD.Tensor) is ADD.Tensor


def test_a_packet_resolves_to_its_default():
    """A packet stands for its default overload."""
    assert resolve(torch.ops.aten.relu) is torch.ops.aten.relu.default


def test_unknown_operators_are_not_resolved():
    """An operator that is not registered is an error that names it, and stays unregistered."""
    with pytest.raises(UnknownOperator) as caught:
        resolve("nstest::nope")
    assert caught.value.name == "nstest::nope.default"
    assert not is_installed("nstest::nope")


def test_a_wrong_overload_lists_the_right_ones():
    """When the operator exists, the error names its overloads and not the library to import."""
    with pytest.raises(UnknownOperator, match=r"its overloads are default, out") as caught:
        resolve("nstest::attn.nope")
    assert "import" not in str(caught.value)


def test_installed_overloads_are_listed():
    """All overloads of an operator are found, whichever is asked about."""
    assert installed_overloads(f"{NSTEST}::attn.nope") == ("default", "out")


@pytest.mark.parametrize(("name", "place"), [("x", "0P"), ("shift", "3P"), ("flag", "4K"), ("extra", "7K")])
def test_positions(name, place):
    """A signature says where an argument stands, as tables of operators do."""
    assert signature_of(torch.ops.nstest.mix.default).position(name) == place


def test_types_are_spelled_as_in_schemas():
    """Types read as the schema writes them, and None is a value of optional ones only."""
    arguments = signature_of(torch.ops.nstest.lists.default).arguments
    assert [a.spelled for a in arguments.values()] == ["Tensor[]", "Tensor?[]", "int[]?", "int[]"]
    assert [a.optional for a in arguments.values()] == [False, False, True, False]


def test_written_arguments_are_known():
    """An argument that the operator writes into is marked, whatever its alias letter."""
    arguments = signature_of(torch.ops.nstest.fill.default).arguments
    assert [a.name for a in arguments.values() if a.written] == ["out"]


def test_an_argument_without_default_is_required():
    """Only arguments with a default may be left out."""
    arguments = signature_of(torch.ops.nstest.mix.default).arguments
    assert [a.name for a in arguments.values() if a.default is REQUIRED] == ["x", "sizes"]
    assert repr(REQUIRED) == "REQUIRED"


def test_defaults_cannot_be_changed():
    """A default list is shared by all calls of an operator, so it is a tuple."""
    assert signature_of(torch.ops.nstest.lists.default).defaults["pair"] == (1, 1)
    assert hash(signature_of(torch.ops.nstest.lists.default).arguments["pair"])
