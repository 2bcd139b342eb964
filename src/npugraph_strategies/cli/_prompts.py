"""The sentences that the demo continues, and how text becomes tokens: its bytes in UTF-8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PROMPTS", "encode", "printable"]

PROMPTS: Final = (
    "The graph was captured once, and every step since has been a replay.",
    "Lengths change;",
    "Grüße aus Zürich, wo es heute schneit.",
    "A paged cache keeps its keys in blocks, wherever there is room for them.",
    "Ein Satz.",
    "注意力只看已经写入的键。",
    "To be, or not to be: that is the question.",
    "Once upon a time there was a stream that waited for an event nobody recorded, and it waits to this day.",
    "∀x ∃y: x ≠ y",
    "Seven bytes make a week, said the tokenizer.",
    "Le cœur a ses raisons que la raison ne connaît point.",
    "42",
)
"""All of different lengths in bytes, so that no two sequences of a batch agree by accident."""


def encode(text: str) -> list[int]:
    """Return the bytes of the text.

    >>> encode("né")
    [110, 195, 169]
    """
    return list(text.encode())


def printable(tokens: Iterable[int]) -> str:
    """Return the tokens as text, with a dot for what is no printable ASCII.

    >>> printable([104, 105, 10, 255])
    'hi··'
    """
    return "".join(chr(token) if 32 <= token < 127 else "·" for token in tokens)  # noqa: PLR2004 - the ASCII table
