"""The documentation's blocks that need an NPU."""

from __future__ import annotations

import pytest

from support import pages


@pytest.mark.parametrize(
    "page", [page for page in pages.PAGES if any(block.info == "python npu" for block in pages.blocks(page))]
)
def test_the_code_on_a_page_runs_on_an_npu(page):
    """The blocks of a page that need an NPU, run in order, do what the page says."""
    pages.run_on_npu(page)
