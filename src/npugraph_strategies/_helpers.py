"""Helper operators, workspaces and outputs: what a handler has to make before its operator can be captured.

Torch_npu's helper operators (``…_get_max_workspace``, ``…_get_workspace``, ``…_infer_output``) take, by name, a
subset of their operator's arguments: which ones is read from the helper's own schema, never from a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import attrs
import torch
from torch import Tensor

from npugraph_strategies._calls import OpCall
from npugraph_strategies._names import qualified_name, resolve
from npugraph_strategies._schema import signature_of
from npugraph_strategies.errors import WorkspaceTooSmall

__all__ = [
    "EmptyLike",
    "GrowingWorkspace",
    "HelperOutputs",
    "MaxWorkspace",
    "NoWorkspace",
    "OutputPolicy",
    "PerHead",
    "WorkspacePolicy",
    "call_helper",
]

if TYPE_CHECKING:
    from collections.abc import Mapping


def call_helper(helper: str, call: OpCall) -> Any:
    """Call a helper operator with those arguments of `call` that its own schema names.

    Raises `UnknownOperator` when the helper is not installed.

    >>> import torch
    >>> from npugraph_strategies import OpCall, reference
    >>> reference.install()
    >>> row = torch.ones(1, 1, 4)
    >>> call = OpCall.bind("npu::npu_fused_infer_attention_score", (row, row, row))
    >>> output, lse = call_helper("npu::_npu_fused_infer_attention_score_infer_output", call)
    >>> output.shape
    torch.Size([1, 1, 4])
    """
    wanted = signature_of(resolve(helper)).arguments
    return OpCall.bind(helper, (), {n: call.arguments[n] for n in wanted if n in call.arguments})()


class WorkspacePolicy(Protocol):
    """When and how large a workspace is made."""

    @property
    def helper(self) -> str | None:
        """Return the helper operator that tells the size, if there is one."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Return the arguments that the policy fills."""
        ...

    def at_capture(self, call: OpCall) -> OpCall:
        """Return the call with a workspace, if it takes one and has none."""
        ...

    def at_update(self, call: OpCall) -> OpCall:
        """Return the call with a workspace that fits its new values."""
        ...


@attrs.frozen
class NoWorkspace:
    """The operator takes no workspace from outside.

    >>> import torch
    >>> from npugraph_strategies import OpCall
    >>> call = OpCall.bind("aten::add.Tensor", (torch.ones(2), 1))
    >>> NoWorkspace().at_capture(call) is call
    True
    """

    @property
    def helper(self) -> None:
        """Return None: nothing tells a size."""
        return

    @property
    def names(self) -> tuple[str, ...]:
        """Return no argument."""
        return ()

    def at_capture(self, call: OpCall) -> OpCall:
        """Return the call as it is."""
        return call

    def at_update(self, call: OpCall) -> OpCall:
        """Return the call as it is."""
        return call


@attrs.frozen
class MaxWorkspace:
    """A workspace for any lengths, made once at capture by a helper that returns the maximum.

    >>> import torch
    >>> from npugraph_strategies import OpCall, reference
    >>> reference.install()
    >>> row = torch.ones(1, 1, 4)
    >>> call = OpCall.bind("npu::npu_fused_infer_attention_score.out", (row, row, row), {"out": [row, row]})
    >>> policy = MaxWorkspace("npu::_npu_fused_infer_attention_score_get_max_workspace")
    >>> call.arguments["workspace"] is None, policy.at_capture(call).arguments["workspace"] is None
    (True, False)
    """

    helper: str = attrs.field(converter=qualified_name)
    argument: str = "workspace"

    @property
    def names(self) -> tuple[str, ...]:
        """Return the workspace argument."""
        return (self.argument,)

    def at_capture(self, call: OpCall) -> OpCall:
        """Return the call with the helper's workspace, unless it has one or its overload takes none."""
        if self.argument not in call.arguments or call.arguments[self.argument] is not None:
            return call
        return call.replace(**{self.argument: call_helper(self.helper, call)})

    def at_update(self, call: OpCall) -> OpCall:
        """Return the call as it is: a maximum fits every value."""
        return call


@attrs.frozen
class GrowingWorkspace(MaxWorkspace):
    """A workspace for the lengths at hand, asked for at every update and made anew when it has become too small.

    For helpers that answer for *these* lengths, whose answers need not grow with them. A new workspace has at least
    twice the old size, so that the sizes of all that a graph went through add up to less than the current one's.
    With ``grow=False`` a value that needs more than was captured is refused with `WorkspaceTooSmall`.

    >>> import torch
    >>> from npugraph_strategies import OpCall, reference
    >>> reference.install()
    >>> query, cache, table = torch.ones(1, 1, 4), torch.ones(64, 8, 1, 4), torch.arange(64).view(1, 64).int()
    >>> arguments = (query, cache, cache, 1, 1, 1.0, table, torch.tensor([1]).int(), query)
    >>> policy = GrowingWorkspace("atb::_npu_paged_attention_get_workspace")
    >>> small = policy.at_capture(OpCall.bind("atb::_npu_paged_attention", arguments))
    >>> large = policy.at_update(small.replace(context_lens=torch.tensor([512]).int()))
    >>> large.arguments["workspace"].nbytes >= 2 * small.arguments["workspace"].nbytes
    True
    """

    grow: bool = True

    def at_update(self, call: OpCall) -> OpCall:
        """Return the call with a workspace that is large enough."""
        current: Tensor | None = call.arguments.get(self.argument)
        if current is None:
            return call
        needed: Tensor = call_helper(self.helper, call.replace(**{self.argument: None}))
        if needed.nbytes <= current.nbytes:
            return call
        if not self.grow:
            raise WorkspaceTooSmall(call.name, needed.nbytes, current.nbytes)
        if needed.nbytes < 2 * current.nbytes:
            count = -(-2 * current.nbytes // needed.element_size())
            needed = torch.empty(count, dtype=needed.dtype, device=needed.device)
        return call.replace(**{self.argument: needed})


class OutputPolicy(Protocol):
    """How one output argument of an ``.out`` overload is made."""

    @property
    def into(self) -> str:
        """Return the argument that takes the output."""
        ...

    @property
    def names(self) -> tuple[str, ...]:
        """Return the arguments that the policy reads."""
        ...

    @property
    def helper(self) -> str | None:
        """Return the helper operator that allocates, if there is one."""
        ...

    def allocate(self, call: OpCall) -> Any:
        """Return fresh outputs for the call."""
        ...


@attrs.frozen
class HelperOutputs:
    """Outputs that a helper operator allocates, given as one list.

    >>> import torch
    >>> from npugraph_strategies import OpCall, reference
    >>> reference.install()
    >>> row = torch.ones(1, 1, 4)
    >>> call = OpCall.bind("npu::npu_fused_infer_attention_score", (row, row, row))
    >>> output, lse = HelperOutputs("npu::_npu_fused_infer_attention_score_infer_output").allocate(call)
    >>> output.shape
    torch.Size([1, 1, 4])
    """

    helper: str = attrs.field(converter=qualified_name)
    into: str = "out"

    @property
    def names(self) -> tuple[str, ...]:
        """Return nothing: the helper's schema says what is read."""
        return ()

    def allocate(self, call: OpCall) -> list[Tensor]:
        """Return what the helper returns, as a list."""
        made = call_helper(self.helper, call)
        return [made] if isinstance(made, Tensor) else list(made)


@attrs.frozen
class EmptyLike:
    """An output with the shape and device of an argument, contiguous; `dtype` names the one that gives the dtype.

    >>> import torch
    >>> from npugraph_strategies import OpCall
    >>> call = OpCall.bind("aten::add.Tensor", (torch.ones(2, 3), 1))
    >>> EmptyLike("out", like="self").allocate(call).shape
    torch.Size([2, 3])
    """

    into: str
    like: str
    dtype: str | None = None

    @property
    def names(self) -> tuple[str, ...]:
        """Return the arguments that give shape and dtype."""
        return (self.like,) if self.dtype is None else (self.like, self.dtype)

    @property
    def helper(self) -> None:
        """Return None: no helper operator is needed."""
        return

    def allocate(self, call: OpCall) -> Tensor:
        """Return an empty tensor."""
        like: Tensor = call.arguments[self.like]
        dtype = like.dtype if self.dtype is None else call.arguments[self.dtype].dtype
        return torch.empty_like(like, dtype=dtype, memory_format=torch.contiguous_format)


@attrs.frozen
class PerHead:
    """An output of shape ``[tokens, heads, 1]``.

    >>> import torch
    >>> from npugraph_strategies import OpCall
    >>> call = OpCall.bind("aten::repeat_interleave.self_int", (torch.ones(5, 8), 2))
    >>> PerHead("out", like="self", heads="repeats").allocate(call).shape
    torch.Size([5, 2, 1])
    """

    into: str
    like: str
    heads: str

    @property
    def names(self) -> tuple[str, ...]:
        """Return the arguments that give the shape."""
        return (self.like, self.heads)

    @property
    def helper(self) -> None:
        """Return None: no helper operator is needed."""
        return

    def allocate(self, call: OpCall) -> Tensor:
        """Return an empty tensor with the dtype and device of the argument it is like."""
        arguments: Mapping[str, Any] = call.arguments
        tokens: Tensor = arguments[self.like]
        return tokens.new_empty(tokens.shape[0], int(arguments[self.heads]), 1)
