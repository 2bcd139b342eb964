"""Failures at every primitive of an NPU."""

from property.test_injected_faults import *  # noqa: F403 - the very same tests, on another device
