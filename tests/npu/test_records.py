"""Records of graphs on an NPU."""

from unit.test_records import *  # noqa: F403 - the very same tests, on another device
