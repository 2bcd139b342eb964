"""What captures do, refuse and leave behind, on an NPU."""

from unit.test_session import *  # noqa: F403 - the very same tests, on another device
