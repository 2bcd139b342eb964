"""Length rules: what the operators' documentation demands, at its boundaries."""

from __future__ import annotations

import pytest
import torch

from npugraph_strategies.errors import InvalidValue
from npugraph_strategies.handlers import (
    FIA_V1,
    MLA,
    PAGED_ATTENTION,
    PagedLengths,
    TokensPerSequence,
)
from support.families import FUSED, NAMES, fused, latent, paged

BATCHED = {"BSND": (2, 3, 1, 4), "BNSD": (2, 1, 3, 4), "BSH": (2, 3, 4), "BNSD_BSND": (2, 1, 3, 4)}


def refused(handler, call, **values):
    """Return the error for values of a call."""
    with pytest.raises(InvalidValue) as caught:
        handler.validate_update(call, values)
    return caught.value


@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
@pytest.mark.parametrize("layout", BATCHED)
@pytest.mark.parametrize("kv", [[5, 5], [0, 1], [5], [2, 3, 0, 99], None])
def test_batched_lengths_that_fit(handler, layout, kv):
    """One length for all, one each, and padding after the batch are taken in every batched layout."""
    call = fused(handler, layout, shape=BATCHED[layout], lengths=[5, 5])
    handler.validate_update(call, {NAMES[handler][1]: kv})


@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
@pytest.mark.parametrize("layout", BATCHED)
@pytest.mark.parametrize(
    ("kv", "expected"),
    [
        ([6, 5], "at most 5"),
        ([5, 6], "at most 5"),
        ([6], "at most 5"),
        ([-1, 5], "non-negative"),
        ([], "one for each of the 2 sequences"),
    ],
)
def test_batched_lengths_that_do_not_fit(handler, layout, kv, expected):
    """Too long, negative or too few lengths are refused, with the argument, what fits and what was given."""
    call = fused(handler, layout, shape=BATCHED[layout], lengths=[5, 5])
    error = refused(handler, call, **{NAMES[handler][1]: kv})
    assert (error.op, error.name, error.given) == (call.name, NAMES[handler][1], str(kv))
    assert expected in error.expected


def test_too_few_of_three():
    """Two lengths for three sequences are neither one for all nor one for each."""
    call = fused(FIA_V1, shape=(3, 3, 1, 4), lengths=[5, 5, 5])
    assert "each of the 3 sequences" in refused(FIA_V1, call, actual_seq_lengths_kv=[5, 5]).expected


def test_query_lengths_are_bounded_by_the_query():
    """A query length is at most the captured number of rows."""
    call = fused(FIA_V1, lengths=[5, 5], queries=[3, 3])
    FIA_V1.validate_update(call, {"actual_seq_lengths": [3, 0]})
    assert "at most 3" in refused(FIA_V1, call, actual_seq_lengths=[4, 0]).expected


def test_query_lengths_of_single_rows_are_not_read():
    """A decoding step has one row a sequence, and the operator ignores its query lengths."""
    call = fused(FIA_V1, shape=(2, 1, 1, 4), lengths=[5, 5])
    FIA_V1.validate_update(call, {"actual_seq_lengths": [1, 2]})


@pytest.mark.parametrize(("kv", "fits"), [([4, 4], True), ([5, 4], False), ([0], True), (None, False)])
def test_batched_lengths_of_blocks(kv, fits):
    """With a block table, a length is given and at most what a row of blocks holds."""
    call = fused(FIA_V1, lengths=[3, 4], blocks=(2, 2))
    if fits:
        FIA_V1.validate_update(call, {"actual_seq_lengths_kv": kv})
    else:
        refused(FIA_V1, call, actual_seq_lengths_kv=kv)


def packed(handler=FIA_V1, **options):
    return fused(handler, "TND", shape=(4, 1, 4), queries=[1, 4], lengths=options.pop("lengths", [2, 5]), **options)


@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
@pytest.mark.parametrize(("queries", "kv"), [([1, 4], [2, 5]), ([4], [5]), ([0, 0, 4], [0, 1, 3]), ([4, 4], [0, 0])])
def test_packed_lengths_that_fit(handler, queries, kv):
    """Cumulative query lengths end at the captured tokens, as many as there are key lengths; their count is free."""
    handler.validate_update(packed(handler), dict(zip(NAMES[handler], (queries, kv), strict=True)))


@pytest.mark.parametrize(
    ("queries", "kv", "wrong", "expected"),
    [
        ([1, 3], [2, 5], "query", "end at the 4 tokens captured"),
        ([1, 5], [2, 5], "query", "end at the 4 tokens captured"),
        ([5, 4], [2, 5], "query", "never decrease"),
        ([-1, 4], [2, 5], "query", "non-negative"),
        ([], [], "query", "at least one"),
        (None, [2, 5], "query", "at least one"),
        ([1, 4], [2, 6], "kv", "end at no more than the 5 tokens captured"),
        ([1, 4], [3, 2], "kv", "never decrease"),
        ([1, 4], [5], "kv", "2 lengths, as many as"),
        ([1, 4], [1, 2, 5], "kv", "2 lengths, as many as"),
        ([1, 4], None, "kv", "at least one"),
    ],
)
@pytest.mark.parametrize("handler", FUSED, ids=["v1", "v2"])
def test_packed_lengths_that_do_not_fit(handler, queries, kv, wrong, expected):
    """A wrong end, order, sign or count of packed lengths is refused, naming the argument."""
    names = dict(zip(("query", "kv"), NAMES[handler], strict=True))
    error = refused(handler, packed(handler), **{names["query"]: queries, names["kv"]: kv})
    assert error.name == names[wrong]
    assert expected in error.expected


@pytest.mark.parametrize(
    ("kv", "expected"),
    [([4, 4], None), ([4, 1], None), ([4, 5], "at most 4"), ([-1, 1], "non-negative"), ([4], "2 lengths")],
)
def test_packed_lengths_of_blocks_are_per_sequence(kv, expected):
    """With a block table, key lengths of a packed batch need not grow, and each fits its row of blocks."""
    call = packed(lengths=[3, 4], blocks=(2, 2))
    if expected is None:
        FIA_V1.validate_update(call, {"actual_seq_lengths_kv": kv})
    else:
        assert expected in refused(FIA_V1, call, actual_seq_lengths_kv=kv).expected


def test_packed_lengths_match_the_rows_of_blocks():
    """As many sequences as the block table has rows."""
    call = packed(lengths=[3, 4], blocks=(2, 2))
    error = refused(FIA_V1, call, actual_seq_lengths=[1, 2, 4], actual_seq_lengths_kv=[1, 1, 1])
    assert "one for each row of block_table" in error.expected


def test_an_unknown_layout_is_left_to_the_operator():
    """A layout that the rule does not know is not judged."""
    call = fused(FIA_V1, lengths=[5, 5]).replace(input_layout="NSD")
    FIA_V1.validate_update(call, {"actual_seq_lengths_kv": [99]})


@pytest.mark.parametrize(
    ("lens", "expected"),
    [
        ([0, 4], None),
        ([4, 4], None),
        ([5, 0], "at most 4"),
        ([-1, 0], "non-negative"),
        ([1], "2 lengths"),
        ([], "2 le"),
    ],
)
def test_paged_lengths(lens, expected):
    """Paged attention takes one length per query token, each at most what its row of blocks holds."""
    value = torch.tensor(lens, dtype=torch.int32)
    if expected is None:
        PAGED_ATTENTION.validate_update(paged(), {"context_lens": value})
    else:
        assert expected in refused(PAGED_ATTENTION, paged(), context_lens=value).expected


def test_a_block_table_may_have_more_rows():
    """Padding rows of a block table want no length of their own."""
    call = paged(rows=4)
    PAGED_ATTENTION.validate_update(call, {"context_lens": torch.tensor([1, 2], dtype=torch.int32)})
    error = refused(PAGED_ATTENTION, call, context_lens=torch.ones(4, dtype=torch.int32))
    assert "one for each row of query" in error.expected


@pytest.mark.parametrize(("cache", "block_size"), [((9, 5, 2, 4), 5), ((9, 2, 5, 16), 5)])
def test_the_block_size_is_read_from_the_cache(cache, block_size):
    """The block size is found in the ordinary and in the fractal form of a cache."""
    call = paged().replace(key_cache=torch.empty(cache))
    rule = PagedLengths("context_lens", block_table="block_table", cache="key_cache", query="query", sequences="query")
    rule.check(call.replace(context_lens=torch.tensor([2 * block_size, 0])))
    with pytest.raises(InvalidValue, match=f"at most {2 * block_size}"):
        rule.check(call.replace(context_lens=torch.tensor([2 * block_size + 1, 0])))


@pytest.mark.parametrize("overload", ["default", "lse"])
@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ({"context_lens": [4, 0]}, None),
        ({"context_lens": [5, 0]}, "at most 4"),
        ({"context_lens": [4, 0, 0]}, "2 lengths, one for each row of block_tables"),
        ({"qseqlen": [2, 1]}, None),
        ({"qseqlen": [0, 3]}, None),
        ({"qseqlen": [1, 1]}, "add up to the 3 tokens"),
        ({"qseqlen": [3]}, "2 lengths"),
        ({"qseqlen": [4, -1]}, "non-negative"),
        ({"qseqlen": None}, "add up to the 3 tokens"),
    ],
)
def test_latent_lengths(overload, values, expected):
    """Latent attention takes a context length for each row of blocks, and queries that add up to the tokens."""
    call = latent(overload, tokens=3, queries=[1, 2])
    if expected is None:
        MLA.validate_update(call, values)
    else:
        assert expected in refused(MLA, call, **values).expected


def test_one_token_each_is_the_default():
    """Without query lengths every sequence has one token."""
    MLA.validate_update(latent(tokens=2), {"qseqlen": None, "context_lens": [1, 1]})


@pytest.mark.parametrize("handler", [FIA_V1, MLA, PAGED_ATTENTION])
def test_a_rule_names_what_it_reads(handler):
    """A rule lists its arguments once each, so that a registry's check can find them in the schema."""
    for rule in handler.lengths:
        assert len(set(rule.names)) == len(rule.names) > 1


def test_rules_are_values():
    """Equal rules are equal, hash alike, and show how to write them."""
    rule = TokensPerSequence("qseqlen", tokens="q_nope", block_table="block_tables")
    assert rule == MLA.lengths[1]
    assert hash(rule) == hash(MLA.lengths[1])
    assert eval(repr(rule)) == rule  # noqa: S307 - our own repr
