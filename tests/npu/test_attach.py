"""Attaching to a capture of the caller's, on an NPU."""

from unit.test_attach import *  # noqa: F403 - the very same tests, on another device
