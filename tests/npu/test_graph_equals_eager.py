"""The state machine 'graph equals eager', on an NPU."""

from property.test_graph_equals_eager import *  # noqa: F403 - the very same tests, on another device
