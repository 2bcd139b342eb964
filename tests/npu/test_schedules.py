"""Steps in either order, by primitives, on an NPU."""

from property.test_schedules import *  # noqa: F403 - the very same tests, on another device
