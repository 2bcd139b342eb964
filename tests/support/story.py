"""Small operators with the shape of the real ones, for tests that are about graphs and not about attention.

``story::attn(q, lens=…)`` is ``10 * sum(lens) + q``, so that a stale value is seen at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npugraph_strategies import GraphCaptureSession, HandlerRegistry, OutVariant, UpdateParams
from npugraph_strategies.handlers import EmptyLike
from npugraph_strategies.runtimes import SimulatedRuntime

if TYPE_CHECKING:
    from npugraph_strategies.runtimes import GraphRuntime

LIBRARY = torch.library.Library("story", "DEF")
LIBRARY.define("attn(Tensor q, *, SymInt[]? lens=None, SymInt[]? other=None, Tensor? table=None) -> Tensor")
LIBRARY.define(
    "attn.out(Tensor q, *, SymInt[]? lens=None, SymInt[]? other=None, Tensor? table=None, Tensor(a!) out) -> Tensor(a!)"
)
LIBRARY.define("paged(Tensor q, Tensor context_lens, Tensor(a!) out) -> ()")
LIBRARY.define("partly(Tensor q, *, int[] lens) -> (Tensor, Tensor)")
LIBRARY.define("partly.out(Tensor q, *, int[] lens, Tensor out) -> (Tensor, Tensor)")
LIBRARY.define("picky(Tensor q, *, int[] lens) -> Tensor")
LIBRARY.define("picky.out(Tensor q, *, int[] lens, Tensor(a!) out) -> Tensor(a!)")


def _attn(q, *, lens=None, other=None, table=None):
    result = q + 10 * sum(lens or ()) + 1000 * sum(other or ())
    return result if table is None else result + table.sum().to(q.dtype)


def _attn_out(q, *, lens=None, other=None, table=None, out):
    return out.copy_(_attn(q, lens=lens, other=other, table=table))


def _paged(q, context_lens, out):
    out.copy_(q + 10 * context_lens.sum())


def _picky(q, *, lens):
    if 13 in lens:
        raise RuntimeError("picky does not like 13")
    return q + 10 * sum(lens)


def _picky_out(q, *, lens, out):
    return out.copy_(_picky(q, lens=lens))


def _partly(q, *, lens):
    return _picky(q, lens=lens), q.new_zeros(1)


def _partly_out(q, *, lens, out):
    return _picky_out(q, lens=lens, out=out), q.new_zeros(1)


LIBRARY.impl("attn", _attn, "CPU")
LIBRARY.impl("partly", _partly, "CPU")
LIBRARY.impl("partly.out", _partly_out, "CPU")
LIBRARY.impl("attn.out", _attn_out, "CPU")
LIBRARY.impl("paged", _paged, "CPU")
LIBRARY.impl("picky", _picky, "CPU")
LIBRARY.impl("picky.out", _picky_out, "CPU")
torch.library.register_fake("story::attn", lambda q, **_: torch.empty_like(q), lib=LIBRARY)
torch.library.register_fake("story::attn.out", lambda q, *, out, **_: out, lib=LIBRARY)  # noqa: ARG005
torch.library.register_fake("story::paged", lambda q, context_lens, out: None, lib=LIBRARY)  # noqa: ARG005
torch.library.register_fake("story::picky", _picky, lib=LIBRARY)
torch.library.register_fake("story::picky.out", _picky_out, lib=LIBRARY)

torch.library.register_fake("story::partly", _partly, lib=LIBRARY)
torch.library.register_fake("story::partly.out", lambda q, *, out, **_: (out, q.new_empty(1)), lib=LIBRARY)

attn = torch.ops.story.attn
partly = torch.ops.story.partly
paged = torch.ops.story.paged
picky = torch.ops.story.picky

ATTN = OutVariant(
    ("story::attn.default", "story::attn.out"),
    ("lens", "other"),
    rebind="table",
    outputs=(EmptyLike("out", like="q"),),
)
PAGED = UpdateParams("story::paged.default", "context_lens")
PICKY = OutVariant(("story::picky.default", "story::picky.out"), "lens", outputs=(EmptyLike("out", like="q"),))
STORY = HandlerRegistry.of(ATTN, PAGED, PICKY)


def story_session(runtime: GraphRuntime | None = None, **options: object) -> GraphCaptureSession:
    """Make a session over the story's handlers, by default on a simulated device of its own."""
    return GraphCaptureSession(STORY, runtime=runtime or SimulatedRuntime(), **options)
