"""Random programs with failures, on an NPU."""

from property.test_programs_with_faults import *  # noqa: F403 - the very same tests, on another device
