"""torch_npu's dump of a graph."""

from __future__ import annotations

import json

import pytest
import torch


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_dump_shows_every_captured_task_and_can_be_aligned(tmp_path):
    """`NPUGraph.debug_dump` writes a timeline with the captured operator, and torch_npu's alignment accepts it."""
    x = torch.ones(4, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        x + 1
    graph.debug_dump(str(tmp_path / "graph.json"))
    dumped = json.loads((tmp_path / "graph.json").read_text())
    aligned = json.loads((tmp_path / "graph.aligned.json").read_text())
    assert any("add" in event["name"].lower() for event in dumped)
    assert len(aligned) >= len(dumped)
