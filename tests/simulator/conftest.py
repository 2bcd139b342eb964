"""A fresh driver for each test."""

from __future__ import annotations

import pytest

from simulator.driver import fresh


@pytest.fixture
def driver():
    """Return a driver as in a fresh process; at the end nothing of this test is left queued or allocated."""
    made = fresh()
    yield made
    made.release()
