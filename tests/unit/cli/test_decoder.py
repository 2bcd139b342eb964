"""The demo's model, its paged cache and its decode loop, without a terminal."""

from __future__ import annotations

import copy
import math

import pytest
import torch
from torch.nn import functional as F  # noqa: N812 - its usual name

from npugraph_strategies import ReplayThenUpdate, UpdateThenReplay
from npugraph_strategies.cli._decoder import Decoder, DecoderConfig, rotate
from npugraph_strategies.cli._decoding import decode
from npugraph_strategies.cli._paging import PagedCache
from npugraph_strategies.cli._prompts import PROMPTS, encode, printable
from npugraph_strategies.cli._stepping import EagerStep, prefill
from npugraph_strategies.runtimes import SimulatedRuntime

SMALL = DecoderConfig(layers=2, hidden=32, heads=4, kv_heads=2, head_dim=16, intermediate=48, block_size=4)
ONE_LAYER = DecoderConfig(layers=1, hidden=32, heads=2, kv_heads=1, head_dim=16, intermediate=48)


def prompts(batch=3):
    return [encode(prompt) for prompt in PROMPTS[:batch]]


def run(decoder=None, *, batch=3, steps=3, seed=0, lazy=False, **options):
    decoder = Decoder(ONE_LAYER, seed=seed) if decoder is None else decoder
    runtime = SimulatedRuntime(seed=seed, lazy=lazy)
    return decode(decoder, prompts(batch), runtime=runtime, steps=steps, seed=seed, **options)


def turned(x):
    """Return ``[tokens, heads, dim]`` with row i turned by i, in complex numbers."""
    half = x.size(-1) // 2
    pairs = torch.complex(x[..., :half].double(), x[..., half:].double())
    frequencies = 10000.0 ** (-torch.arange(half, dtype=torch.float64) / half)
    angles = torch.arange(x.size(0), dtype=torch.float64)[:, None, None] * frequencies
    turned = pairs * torch.polar(torch.ones_like(angles), angles)
    return torch.cat([turned.real, turned.imag], dim=-1).float()


def plain_logits(decoder, ids):
    """Return the same model's logits for one whole sequence, in plain torch: no cache, no pages, no packed batch."""
    config = decoder.config
    x = decoder.embedding[torch.tensor(ids)]
    for layer in decoder.layers:
        normed = F.rms_norm(x, (config.hidden,), layer.input_norm.weight, config.epsilon)
        attn = layer.self_attn
        query, key, value = (
            (normed @ weight.T).view(len(ids), -1, config.head_dim) for weight in (attn.query, attn.key, attn.value)
        )
        seen = F.scaled_dot_product_attention(
            *(t.transpose(0, 1)[None] for t in (turned(query), turned(key), value)), is_causal=True, enable_gqa=True
        )
        x = x + seen[0].transpose(0, 1).flatten(1) @ attn.output.T
        normed = F.rms_norm(x, (config.hidden,), layer.mlp_norm.weight, config.epsilon)
        x = x + (F.silu(normed @ layer.mlp.gate.T) * (normed @ layer.mlp.up.T)) @ layer.mlp.down.T
    return F.rms_norm(x, (config.hidden,), decoder.norm.weight, config.epsilon) @ decoder.head.T


# -- the model -------------------------------------------------------------------------------------------------------


def test_decoding_on_a_paged_cache_equals_plain_torch_over_the_whole_sequence():
    """Prefill and three steps give the logits that plain torch gives for each prompt with its continuation."""
    decoder = Decoder(SMALL, seed=5)
    cache = PagedCache.empty(SMALL, batch=3, capacity=80, seed=1)
    texts = prompts()
    said = prefill(decoder, texts, cache)
    step = EagerStep(decoder, cache)
    for _ in range(3):
        texts = [[*text, token] for text, token in zip(texts, said, strict=True)]
        result = step.run(said, [len(text) for text in texts])
        expected = torch.stack([plain_logits(decoder, text)[-1] for text in texts])
        torch.testing.assert_close(result.logits, expected, atol=2e-5, rtol=1e-4)
        said = result.tokens


def test_rotation_depends_on_the_distance_alone():
    """A query and a key turned by positions 7 and 3 agree like those turned by 5 and 1."""
    query, key = torch.randn(2, 1, 1, 16, generator=torch.Generator().manual_seed(0))

    def at(x, position):
        angle = torch.full((1, 1, 16), 0.3 * position)
        return rotate(x, angle.cos(), angle.sin())

    far, near = ((at(query, p + 4) * at(key, p)).sum() for p in (3, 1))
    torch.testing.assert_close(far, near)


def test_logits_depend_on_every_length():
    """A step that is told a length too small by one computes something else for that sequence, and for it alone."""
    decoder = Decoder(SMALL, seed=0)
    cache = PagedCache.empty(SMALL, batch=3, capacity=80, seed=1)
    said = prefill(decoder, prompts(), cache)
    lengths = [len(prompt) + 1 for prompt in prompts()]
    right = EagerStep(decoder, cache.copy()).run(said, lengths)
    wrong = EagerStep(decoder, cache.copy()).run(said, [lengths[0], lengths[1] - 1, lengths[2]])
    differs = (right.logits != wrong.logits).any(dim=1).tolist()
    assert differs == [False, True, False]


def test_weights_follow_from_the_seed():
    """One seed gives one model, another seed another."""
    one, same, other = (Decoder(ONE_LAYER, seed=seed).head for seed in (4, 4, 5))
    assert torch.equal(one, same)
    assert not torch.equal(one, other)


# -- the cache -------------------------------------------------------------------------------------------------------


def test_no_two_tokens_share_a_slot():
    """Slots of all positions of all sequences are distinct, within the cache, and not in order."""
    cache = PagedCache.empty(SMALL, batch=3, capacity=10, seed=0)
    slots = [cache.slot(sequence, position) for sequence in range(3) for position in range(10)]
    assert len(set(slots)) == len(slots)
    assert max(slots) < cache.keys[0].size(0) * cache.block_size
    assert slots != sorted(slots)
    assert cache.block_table.tolist() == [list(row) for row in cache.table]


def test_what_is_written_to_a_copy_stays_there():
    """Writing into a copy leaves the cache alone."""
    cache = PagedCache.empty(SMALL, batch=1, capacity=4, seed=0)
    twin = cache.copy()
    twin.write(0, torch.tensor([2]), torch.ones(1, 2, 16), torch.ones(1, 2, 16))
    assert twin.keys[0].sum().item() == 32
    assert twin.values[0][0, 2].sum().item() == 32
    assert cache.keys[0].count_nonzero() == 0


# -- the prompts -----------------------------------------------------------------------------------------------------


def test_prompts_differ_in_length():
    """No two prompts have as many bytes, and all are bytes of the vocabulary."""
    lengths = [len(encode(prompt)) for prompt in PROMPTS]
    assert len(set(lengths)) == len(PROMPTS)
    assert all(0 <= token < 256 for prompt in PROMPTS for token in encode(prompt))


def test_what_cannot_be_printed_is_a_dot():
    """Control characters and bytes beyond ASCII become dots."""
    assert printable([0, 31, 32, 126, 127, 200]) == "·· ~··"


# -- the loop --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("order", [UpdateThenReplay(), ReplayThenUpdate()], ids=lambda order: type(order).__name__)
def test_the_graph_says_what_eager_says(order, lazy):
    """In both orders, with streams that run at once or late, no logit differs at all."""
    for seed in range(3):
        result = run(order=order, lazy=lazy, seed=seed)
        assert result.mismatches == 0
        assert result.largest_difference == 0.0


def test_each_step_adds_a_token_to_sequences_of_different_lengths():
    """Lengths start one above the prompts' and grow by one; each step is fed what the one before said."""
    result = run(batch=4, steps=3)
    starts = [len(prompt) for prompt in prompts(4)]
    assert len(set(starts)) == 4
    assert [list(step.lengths) for step in result.steps] == [[s + n for s in starts] for n in (1, 2, 3)]
    assert [continuation[1:] for continuation in result.continuations] == list(
        zip(*(step.tokens for step in result.steps), strict=True)
    )


def test_the_continuation_follows_from_the_seed():
    """One seed gives one text, in either order; another seed gives another."""
    one = run(steps=5, seed=1).continuations
    assert run(steps=5, seed=1, order=ReplayThenUpdate(), lazy=True).continuations == one
    assert run(steps=5, seed=2).continuations != one


def test_the_continuation_is_what_plain_torch_would_say():
    """The graph's text is the greedy one of plain torch (over printable bytes)."""
    decoder = Decoder(SMALL, seed=3)
    result = run(decoder, batch=2, steps=4)
    for prompt, continuation in zip(prompts(2), result.continuations, strict=True):
        logits = plain_logits(decoder, [*prompt, *continuation[:-1]])[len(prompt) - 1 :]
        assert tuple((logits[:, 32:127].argmax(dim=-1) + 32).tolist()) == continuation


@pytest.mark.parametrize("batch", [1, 2, len(PROMPTS)])
def test_any_batch(batch):
    """A batch of one, of some, and of all prompts."""
    result = run(batch=batch, steps=2)
    assert result.mismatches == 0
    assert len(result.continuations) == batch


def test_half_precision_and_large_blocks():
    """What an NPU wants, on the simulated device."""
    config = DecoderConfig(layers=1, hidden=32, heads=2, kv_heads=1, head_dim=16, dtype=torch.float16, block_size=128)
    assert run(Decoder(config, seed=0), steps=2).mismatches == 0


def test_what_the_device_was_asked_for():
    """One capture; each step is one replay, and one update of every record; groups are begun as often as ended."""
    result = run(Decoder(SMALL, seed=0), steps=4)
    counts = result.primitives
    assert result.records == ("layers.0.self_attn#0", "layers.1.self_attn#0")
    assert (result.replays, result.updates) == (4, 8)
    assert counts["graph.capture_begin"] == counts["graph.capture_end"] == counts["graph.reset"] == 1
    assert counts["task_group_begin"] == counts["task_group_end"] == 2
    assert counts["task_update_begin"] == counts["task_update_end"] == 8


def test_steps_are_told_one_by_one():
    """The callback gets every step, in order."""
    told = []
    result = run(steps=3, on_step=told.append)
    assert tuple(told) == result.steps


# -- differences -----------------------------------------------------------------------------------------------------


def test_a_planted_difference_is_counted():
    """A changed weight of the eager model makes every step a mismatch, unless the tolerance allows it."""
    decoder = Decoder(ONE_LAYER, seed=0)
    other = copy.deepcopy(decoder)
    other.head[40] += 1e-4
    strict = run(decoder, eager=other)
    assert strict.mismatches == len(strict.steps) == 3
    assert 0 < strict.largest_difference < 1e-2
    tolerant = run(decoder, eager=other, tolerance=1e-2)
    assert tolerant.mismatches == 0
    assert tolerant.largest_difference == strict.largest_difference


def test_other_tokens_are_a_mismatch_whatever_the_tolerance():
    """Eager's own token is kept beside the graph's, and the graph's goes on."""
    result = run(Decoder(ONE_LAYER, seed=0), eager=Decoder(ONE_LAYER, seed=1), tolerance=math.inf)
    assert result.mismatches > 0
    assert all((step.tokens == step.eager_tokens) == step.matches for step in result.steps)
    assert result.continuations == run(Decoder(ONE_LAYER, seed=0)).continuations


def test_a_nan_is_a_difference():
    """Logits that are NaN never match."""
    decoder = Decoder(ONE_LAYER, seed=0)
    other = copy.deepcopy(decoder)
    other.head[200] = math.nan
    result = run(decoder, eager=other, tolerance=1.0)
    assert result.mismatches == 3
    assert result.largest_difference == math.inf
