"""Interleavings of graphs and threads on an NPU."""

from property.test_interleavings import *  # noqa: F403 - the very same tests, on another device
