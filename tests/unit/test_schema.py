"""Schemas: what is read of an operator's arguments and results."""

from __future__ import annotations

import pytest
import torch

from npugraph_strategies._schema import REQUIRED, signature_of

ADD = torch.ops.aten.add.Tensor


def test_arguments_stand_in_schema_order_with_their_defaults() -> None:
    """Every argument has its default, or the mark of one that has none."""
    signature = signature_of(ADD)
    assert signature.op == "aten::add.Tensor"
    assert list(signature.defaults.items()) == [("self", REQUIRED), ("other", REQUIRED), ("alpha", 1)]


def test_keyword_only_arguments_are_told_from_positional_ones() -> None:
    """Positions count from 0 and say which kind they are."""
    signature = signature_of(ADD)
    assert [a.name for a in signature.positional] == ["self", "other"]
    assert [a.name for a in signature.keyword] == ["alpha"]
    assert (signature.position("other"), signature.position("alpha")) == ("1P", "2K")


@pytest.mark.parametrize(
    ("op", "name", "spelled"),
    [
        (torch.ops.aten.sum.dim_IntList, "dim", "int[]?"),
        (torch.ops.aten.index.Tensor, "indices", "Tensor?[]"),
        (torch.ops.aten.convolution.default, "bias", "Tensor?"),
        (torch.ops.aten.cat.default, "tensors", "Tensor[]"),
        (torch.ops.aten.sort.default, "descending", "bool"),
    ],
    ids=lambda value: value if isinstance(value, str) else str(value),
)
def test_types_are_spelled_as_schemas_spell_them(op, name, spelled) -> None:
    """Lists and optionals nest as they do in a schema."""
    assert signature_of(op).arguments[name].spelled == spelled


@pytest.mark.parametrize(
    ("op", "allocates"),
    [
        (ADD, True),
        (torch.ops.aten.add.out, False),
        (torch.ops.aten.add_.Tensor, False),
        (torch.ops.aten.narrow.default, False),
    ],
    ids=["functional", "out", "in place", "view"],
)
def test_what_returns_new_memory_is_known(op, allocates) -> None:
    """Only results that alias no argument are new memory."""
    assert signature_of(op).allocates is allocates


def test_written_arguments_are_known() -> None:
    """An out argument is written, an input is not."""
    arguments = signature_of(torch.ops.aten.add.out).arguments
    assert arguments["out"].written
    assert not arguments["self"].written
