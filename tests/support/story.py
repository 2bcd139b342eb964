"""Small operators with the shape of the real ones, for tests that are about graphs and not about attention.

``story::attn(q, lens=…)`` is ``10 * sum(lens) + q``, so that a stale value is seen at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from npugraph_strategies import GraphCaptureSession, HandlerRegistry, OutVariant, UpdateParams
from npugraph_strategies.handlers import EmptyLike

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


# On a device an operator is a fixed number of tasks that write to what they are given: an update allocates nothing
# that the graph would go on using. Host values are frozen in the tasks.


def _attn(q, *, lens=None, other=None, table=None):
    return _attn_out(q, lens=lens, other=other, table=table, out=torch.empty_like(q))


def _attn_out(q, *, lens=None, other=None, table=None, out):
    torch.add(q, 10 * sum(lens or ()) + 1000 * sum(other or ()), out=out)
    for element in () if table is None else table.unbind():
        out.add_(element)
    return out


def _paged(q, context_lens, out):
    torch.add(q, 10 * int(context_lens.sum()), out=out)


def _picky(q, *, lens):
    return _picky_out(q, lens=lens, out=torch.empty_like(q))


def _picky_out(q, *, lens, out):
    if 13 in lens:
        raise RuntimeError("picky does not like 13")
    return torch.add(q, 10 * sum(lens), out=out)


def _partly(q, *, lens):
    return _partly_out(q, lens=lens, out=torch.empty_like(q))


def _partly_out(q, *, lens, out):
    return _picky_out(q, lens=lens, out=out), q.new_empty(1)


_KERNELS = {
    "attn": _attn,
    "attn.out": _attn_out,
    "paged": _paged,
    "partly": _partly,
    "partly.out": _partly_out,
    "picky": _picky,
    "picky.out": _picky_out,
}
for _name, _kernel in _KERNELS.items():
    for _key in ("CPU", "PrivateUse1"):  # the simulated device, an NPU
        LIBRARY.impl(_name, _kernel, _key)
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


def story_session(runtime: GraphRuntime, **options: object) -> GraphCaptureSession:
    """Make a session over the story's handlers."""
    return GraphCaptureSession(STORY, runtime=runtime, **options)
