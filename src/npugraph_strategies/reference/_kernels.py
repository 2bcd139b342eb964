"""What is registered for one operator: the kernel that computes, and the one that only knows shapes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["Kernel"]


@attrs.frozen
class Kernel:
    """A pair of functions with the operator's arguments; `run` gets real tensors, `fake` those without data."""

    run: Callable[..., Any]
    fake: Callable[..., Any]
