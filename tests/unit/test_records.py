"""Records: a read-only view of one captured call."""

from __future__ import annotations

import pytest

from support.story import ATTN, attn, story_session


@pytest.fixture
def graph(bench, q):
    """Capture one call."""
    with story_session(bench.runtime()).capture(label=lambda _: "here") as graph:
        attn(q, lens=[1])
    return graph


def test_a_record_says_what_it_is(graph) -> None:
    """A record has its place, label, handler, operator and the names that an update may give."""
    (record,) = graph.records
    assert (record.index, record.label, record.op) == (0, "here#0", "story::attn.out")
    assert record.handler == ATTN
    assert record.params == ("lens", "other", "table")


def test_a_record_follows_updates_and_replays(graph) -> None:
    """Values and the armed state are those of now."""
    (record,) = graph.records
    graph.update({"lens": [2]})
    assert record.values["lens"] == (2,)
    assert record.armed
    graph.replay()
    assert record.arguments["lens"] == (2,)
    assert not record.armed


@pytest.mark.parametrize("name", ["values", "arguments"])
def test_what_a_record_shows_cannot_be_changed(graph, name) -> None:
    """The mappings of a record are read-only."""
    with pytest.raises(TypeError):
        getattr(graph.records[0], name)["lens"] = (3,)
