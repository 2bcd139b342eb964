"""What graphs do, refuse and survive, on an NPU."""

from unit.test_graph import *  # noqa: F403 - the very same tests, on another device
