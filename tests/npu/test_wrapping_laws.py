"""How arguments on an NPU are kept."""

from property.test_wrapping_laws import *  # noqa: F403 - the very same tests, on another device
