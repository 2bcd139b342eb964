"""Fixtures of the tests of the reference kernels."""

from __future__ import annotations

import pytest

from npugraph_strategies import reference


@pytest.fixture(autouse=True, scope="session")
def _installed():
    reference.install()
