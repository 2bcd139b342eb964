"""Operators that networks are made of give on the device what torch gives on the CPU, gradients included."""

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INDICES = (torch.int64, torch.int32)
# Results of narrow types are rounded after other steps on each device: compare what they can tell apart.
TOLERANCE = {
    torch.float32: {"rtol": 1e-4, "atol": 1e-5},
    torch.float16: {"rtol": 1e-2, "atol": 1e-2},
    torch.bfloat16: {"rtol": 5e-2, "atol": 5e-2},
}

few = settings(max_examples=5, deadline=None)


def _transposed(shape):
    return shape[::-1], lambda base: base.permute(*reversed(range(base.dim())))


def _sliced(shape):
    return (*shape[:-1], 2 * shape[-1] + 1), lambda base: base[..., 1::2]


def _expanded(shape):
    return (1, *shape[1:]), lambda base: base.expand(shape)


def as_it_is(base):
    """Return the base of a layout itself."""
    return base


def _contiguous(shape):
    return shape, as_it_is


LAYOUTS = {"contiguous": _contiguous, "transposed": _transposed, "sliced": _sliced, "expanded": _expanded}


@attrs.frozen
class Laid:
    """A tensor in a layout that is the same on each device."""

    base: torch.Tensor = attrs.field(eq=False)
    view: object = attrs.field(eq=False, repr=False)

    def on(self, device):
        """Return the tensor on a device, in memory of its own."""
        return self.view(self.base.to(device, copy=True)).detach()


@attrs.frozen
class Source:
    """Where an example takes its inputs from: sizes by name, floats of one type, indices, each in some layout."""

    data: object
    dtypes: tuple = FLOATS
    sizes: dict = attrs.Factory(dict)
    memo: dict = attrs.Factory(dict)

    def once(self, key, strategy):
        """Draw a value the first time its key is asked for."""
        if key not in self.memo:
            self.memo[key] = self.data.draw(strategy, label=str(key))
        return self.memo[key]

    def size(self, of):
        """Return the size that has this name; a number is itself."""
        return of if isinstance(of, int) else self.once(of, st.integers(1, 5))

    @property
    def dtype(self):
        """Return the type of the example's floats."""
        return self.once("dtype", st.sampled_from(self.dtypes))

    def laid(self, shape, make, *, expanded=True):
        """Return what `make` gives for a shape, in a layout that is drawn."""
        shape = tuple(self.size(one) for one in shape)
        allowed = [one for one in LAYOUTS if shape and (expanded or one != "expanded")]
        kept, view = LAYOUTS[self.data.draw(st.sampled_from(allowed or ["contiguous"]))](shape)
        generator = torch.Generator().manual_seed(self.data.draw(st.integers(0, 2**32 - 1)))
        return Laid(make(kept, generator), view)

    def floats(self, *shape, expanded=True):
        """Return normal numbers."""
        return self.laid(shape, lambda kept, g: torch.randn(kept, generator=g).to(self.dtype), expanded=expanded)

    def unit(self, *shape):
        """Return numbers between 0 and 1, without the ends."""
        return self.laid(shape, lambda kept, g: (torch.rand(kept, generator=g) * 0.8 + 0.1).to(self.dtype))

    def distinct(self, *shape):
        """Return numbers that differ from each other."""

        def make(kept, generator):
            count = torch.Size(kept).numel()
            return (torch.randperm(count, generator=generator) / 8).reshape(kept).to(self.dtype)

        return self.laid(shape, make, expanded=False)

    def indices(self, *shape, below, dtype=None):
        """Return indices below a size."""
        kind = dtype or self.data.draw(st.sampled_from(INDICES))
        return self.laid(shape, lambda kept, g: torch.randint(self.size(below), kept, generator=g, dtype=kind))

    def longs(self, *shape, below):
        """Return indices of the type that torch's CPU functions ask for."""
        return self.indices(*shape, below=below, dtype=torch.int64)

    def order(self, of):
        """Return each index below a size once."""
        order = self.data.draw(st.permutations(range(self.size(of))))
        return Laid(torch.tensor(order), as_it_is)

    def mask(self, *shape):
        """Return truth values."""
        return self.laid(shape, lambda kept, g: torch.rand(kept, generator=g) > 0.5)


def tensors_of(value):
    """Return the tensors of a result."""
    return [value] if isinstance(value, torch.Tensor) else [one for part in value for one in tensors_of(part)]


def results(function, inputs, device, *, differentiable):
    """Return on the CPU what a function gives on a device: its results, and gradients of those that have one."""
    placed = [one.on(device) if isinstance(one, Laid) else one for one in inputs]
    leaves = [one for one in placed if isinstance(one, torch.Tensor) and one.is_floating_point() and differentiable]
    for leaf in leaves:
        leaf.requires_grad_()
    found = tensors_of(function(*placed))
    assert all(one.device.type == device for one in found)
    smooth = [one for one in found if one.requires_grad]
    if smooth:
        weights = [torch.linspace(-1, 1, one.numel()).reshape(one.shape).to(one) for one in smooth]
        found += [one for one in torch.autograd.grad(smooth, leaves, weights, allow_unused=True) if one is not None]
    return [one.detach().cpu() for one in found]


def check(function, *inputs, dtype=torch.float32, differentiable=True):
    """Compare what a function gives for the same tensors on both devices."""
    wanted = results(function, inputs, "cpu", differentiable=differentiable)
    got = results(function, inputs, "npu", differentiable=differentiable)
    torch.testing.assert_close(got, wanted, **TOLERANCE[dtype])


def cases(table):
    """Return the parameters of a table, with its names as ids."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in table.items()])


PRODUCTS = {
    "mm": lambda s: (torch.mm, s.floats("n", "k"), s.floats("k", "m")),
    "bmm": lambda s: (torch.bmm, s.floats("b", "n", "k"), s.floats("b", "k", "m")),
    "matmul": lambda s: (torch.matmul, s.floats("b", "h", "n", "k"), s.floats("k", "m")),
    "matmul_broadcast": lambda s: (torch.matmul, s.floats("b", "h", "n", "k"), s.floats("h", "k", "m")),
    "mv": lambda s: (torch.mv, s.floats("n", "k"), s.floats("k")),
    "dot": lambda s: (torch.dot, s.floats("k"), s.floats("k")),
    "outer": lambda s: (torch.outer, s.floats("n"), s.floats("m")),
    "linear": lambda s: (functional.linear, s.floats("b", "n", "k"), s.floats("m", "k"), s.floats("m")),
    "linear_without_bias": lambda s: (functional.linear, s.floats("n", "k"), s.floats("m", "k")),
    "addmm": lambda s: (
        lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2),
        s.floats("m"),
        s.floats("n", "k"),
        s.floats("k", "m"),
    ),
    "baddbmm": lambda s: (
        lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2),
        s.floats("b", "n", "m"),
        s.floats("b", "n", "k"),
        s.floats("b", "k", "m"),
    ),
    "addbmm": lambda s: (
        lambda c, a, b: torch.addbmm(c, a, b, beta=0.5, alpha=2),
        s.floats("n", "m"),
        s.floats("b", "n", "k"),
        s.floats("b", "k", "m"),
    ),
    "addmv": lambda s: (
        lambda c, a, b: torch.addmv(c, a, b, beta=0.5, alpha=2),
        s.floats("n"),
        s.floats("n", "k"),
        s.floats("k"),
    ),
    "addr": lambda s: (
        lambda c, a, b: torch.addr(c, a, b, beta=0.5, alpha=2),
        s.floats("n", "m"),
        s.floats("n"),
        s.floats("m"),
    ),
    "einsum": lambda s: (
        lambda a, b: torch.einsum("bhid,bhjd->bhij", a, b),
        s.floats("b", "h", "n", "k"),
        s.floats("b", "h", "m", "k"),
    ),
}

NORMS = {
    "layer_norm": lambda s: (
        lambda x, w, b: functional.layer_norm(x, w.shape, w, b),
        s.floats("b", "n", 8),
        s.floats(8),
        s.floats(8),
    ),
    "layer_norm_plain": lambda s: (lambda x: functional.layer_norm(x, x.shape[1:]), s.floats("b", 3, 4)),
    "rms_norm": lambda s: (lambda x, w: functional.rms_norm(x, w.shape, w), s.floats("b", "n", 8), s.floats(8)),
    "batch_norm": lambda s: (
        lambda x, w, b: functional.batch_norm(x, None, None, w, b, training=True),
        s.floats(4, "c", 3, 3, expanded=False),
        s.floats("c"),
        s.floats("c"),
    ),
    "group_norm": lambda s: (
        lambda x, w, b: functional.group_norm(x, 2, w, b),
        s.floats("b", 4, 3, 3),
        s.floats(4),
        s.floats(4),
    ),
    "normalize": lambda s: (functional.normalize, s.floats("b", 8)),
}

ACTIVATIONS = {
    "relu": functional.relu,
    "relu6": functional.relu6,
    "gelu": functional.gelu,
    "silu": functional.silu,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.1),
    "elu": lambda x: functional.elu(x, 0.7),
    "selu": functional.selu,
    "celu": lambda x: functional.celu(x, 0.7),
    "hardswish": functional.hardswish,
    "hardsigmoid": functional.hardsigmoid,
    "hardtanh": lambda x: functional.hardtanh(x, -0.4, 0.6),
    "hardshrink": functional.hardshrink,
    "softshrink": functional.softshrink,
    "softplus": lambda x: functional.softplus(x, 2, 1),
    "softsign": functional.softsign,
    "mish": functional.mish,
    "logsigmoid": functional.logsigmoid,
    "threshold": lambda x: functional.threshold(x, 0.1, 2),
    "glu": lambda x: functional.glu(torch.cat([x, x + 1], -1)),
    "prelu": lambda x: functional.prelu(x, x.flatten()[:1]),
    "prelu_channels": lambda x: functional.prelu(x, x[0, :, 0]),
    "softmax": lambda x: functional.softmax(x, -1),
    "softmax_first": lambda x: functional.softmax(x, 0),
    "softmax_wide": lambda x: functional.softmax(x, 1, dtype=torch.float32),
    "log_softmax": lambda x: functional.log_softmax(x, -1),
    "softmin": lambda x: functional.softmin(x, 1),
}

INPLACE_ACTIVATIONS = {
    "relu": functional.relu_,
    "silu": lambda x: functional.silu(x, inplace=True),
    "sigmoid": torch.sigmoid_,
    "tanh": torch.tanh_,
    "leaky_relu": lambda x: functional.leaky_relu(x, 0.1, inplace=True),
    "elu": lambda x: functional.elu(x, inplace=True),
    "celu": lambda x: functional.celu(x, inplace=True),
    "hardswish": lambda x: functional.hardswish(x, inplace=True),
    "hardsigmoid": lambda x: functional.hardsigmoid(x, inplace=True),
    "hardtanh": lambda x: functional.hardtanh(x, inplace=True),
    "mish": lambda x: functional.mish(x, inplace=True),
    "threshold": lambda x: functional.threshold_(x, 0.1, 2),
}

LOSSES = {
    "mse": lambda s, r: (lambda x, y: functional.mse_loss(x, y, reduction=r), s.floats("b", "c"), s.floats("b", "c")),
    "l1": lambda s, r: (lambda x, y: functional.l1_loss(x, y, reduction=r), s.floats("b", "c"), s.floats("b", "c")),
    "smooth_l1": lambda s, r: (
        lambda x, y: functional.smooth_l1_loss(x, y, reduction=r, beta=0.5),
        s.floats("b", "c"),
        s.floats("b", "c"),
    ),
    "soft_margin": lambda s, r: (
        lambda x, y: functional.soft_margin_loss(x, y.sign().detach(), reduction=r),
        s.floats("b", "c"),
        s.floats("b", "c"),
    ),
    "kl_div": lambda s, r: (
        lambda x, y: functional.kl_div(x, y.detach(), reduction="batchmean" if r == "mean" else r),
        s.floats("b", "c"),
        s.unit("b", "c"),
    ),
    "kl_div_log_target": lambda s, r: (
        lambda x, y: functional.kl_div(x, y.detach(), reduction="batchmean" if r == "mean" else r, log_target=True),
        s.floats("b", "c"),
        s.floats("b", "c"),
    ),
    "bce": lambda s, r: (
        lambda x, y, w: functional.binary_cross_entropy(x, y.detach(), w.detach(), reduction=r),
        s.unit("b", "c"),
        s.unit("b", "c"),
        s.unit("b", "c"),
    ),
    "bce_with_logits": lambda s, r: (
        lambda x, y, p: functional.binary_cross_entropy_with_logits(x, y.detach(), pos_weight=p.detach(), reduction=r),
        s.floats("b", "c"),
        s.unit("b", "c"),
        s.unit("c"),
    ),
    "cross_entropy": lambda s, r: (
        lambda x, y: functional.cross_entropy(x, y, reduction=r),
        s.floats("b", "c"),
        s.longs("b", below="c"),
    ),
    "cross_entropy_weighted": lambda s, r: (
        lambda x, y, w: functional.cross_entropy(x, y, w.detach(), ignore_index=1, reduction=r),
        s.floats(5, 3),
        Laid(torch.tensor([0, 1, 2, 2, 0]), as_it_is),
        s.unit(3),
    ),
    "cross_entropy_smooth": lambda s, r: (
        lambda x, y: functional.cross_entropy(x, y, label_smoothing=0.1, reduction=r),
        s.floats("b", "c"),
        s.longs("b", below="c"),
    ),
    "cross_entropy_of_images": lambda s, r: (
        lambda x, y: functional.cross_entropy(x, y, reduction=r),
        s.floats("b", "c", 2, 3),
        s.longs("b", 2, 3, below="c"),
    ),
    "cosine_embedding": lambda s, r: (
        lambda x, y, z: functional.cosine_embedding_loss(x, y, z.sign().detach(), reduction=r),
        s.floats("b", 8),
        s.floats("b", 8),
        s.floats("b"),
    ),
}

READS = {
    "embedding": lambda s: (functional.embedding, s.indices("n", "m", below="v"), s.floats("v", "c")),
    "embedding_padded": lambda s: (
        lambda i, w: functional.embedding(i, w, padding_idx=0, scale_grad_by_freq=True),
        s.longs("n", "m", below="v"),
        s.floats("v", "c"),
    ),
    "index": lambda s: (lambda x, i: x[i], s.floats("n", "c"), s.longs("k", "m", below="n")),
    "index_last": lambda s: (lambda x, i: x[:, i], s.floats("n", "c"), s.longs("k", below="c")),
    "index_apart": lambda s: (
        lambda x, i, j: x[i, :, j],
        s.floats("n", "m", "c"),
        s.longs("k", 1, below="n"),
        s.longs("l", below="c"),
    ),
    "index_integers": lambda s: (
        lambda x, i: x[:, i],
        s.longs("n", "c", below=100),
        s.longs("k", below="c"),
    ),
    "index_empty": lambda s: (lambda x: x[:, torch.empty(0, dtype=torch.int64, device=x.device)], s.floats("n", "c")),
    "index_mask": lambda s: (lambda x, m: x[m], s.floats("n", "c"), s.mask("n", "c")),
    "index_mask_of_rows": lambda s: (lambda x, m: x[m], s.floats("n", "c"), s.mask("n")),
    "index_select": lambda s: (
        lambda x, i: torch.index_select(x, 1, i),
        s.floats("n", "c"),
        s.indices("k", below="c"),
    ),
    "gather": lambda s: (lambda x, i: torch.gather(x, 1, i), s.floats("n", "c"), s.longs("n", "k", below="c")),
    "take": lambda s: (torch.take, s.floats("n", "c"), s.longs("k", "m", below="n")),
    "take_along_dim": lambda s: (
        lambda x, i: torch.take_along_dim(x, i, 1),
        s.floats("n", "c"),
        s.longs("n", "k", below="c"),
    ),
    "masked_select": lambda s: (torch.masked_select, s.floats("n", "c"), s.mask("c")),
    "nonzero": lambda s: (torch.nonzero, s.mask("n", "c")),
    "argwhere": lambda s: (torch.argwhere, s.mask("n", "m", "c")),
    "nonzero_as_tuple": lambda s: (lambda m: torch.nonzero(m, as_tuple=True), s.mask("n", "c")),
    "one_hot": lambda s: (lambda i: functional.one_hot(i, 7), s.longs("n", "m", below=7)),
    "one_hot_of_what_there_is": lambda s: (functional.one_hot, s.longs("n", "m", below=7)),
}

WRITES = {
    "setitem": lambda s: (
        lambda x, i, v: x.__setitem__(i, v),
        s.floats("n", "c", expanded=False),
        s.order("n"),
        s.floats("n", "c"),
    ),
    "setitem_number": lambda s: (
        lambda x, i: x.__setitem__((slice(None), i), 2),
        s.floats("n", "c", expanded=False),
        s.longs("k", below="c"),
    ),
    "setitem_nowhere": lambda s: (
        lambda x, i: x.__setitem__(i[:0], 2),
        s.floats("n", "c", expanded=False),
        s.longs("n", below="n"),
    ),
    "setitem_mask": lambda s: (
        lambda x, m: x.__setitem__(m, 2),
        s.floats("n", "c", expanded=False),
        s.mask("n", "c"),
    ),
    "setitem_mask_of_rows": lambda s: (
        lambda x, m, v: x.__setitem__(m, v),
        s.floats("n", "c", expanded=False),
        s.mask("n"),
        s.floats("c"),
    ),
    "index_put_accumulate": lambda s: (
        lambda x, i, v: x.index_put_((i,), v, accumulate=True),
        s.floats("n", "c", expanded=False),
        s.longs("k", below="n"),
        s.floats("k", "c"),
    ),
    "index_add": lambda s: (
        lambda x, i, v: x.index_add_(0, i, v, alpha=2),
        s.floats("n", "c", expanded=False),
        s.indices("k", below="n"),
        s.floats("k", "c"),
    ),
    "index_copy": lambda s: (
        lambda x, i, v: x.index_copy_(0, i, v),
        s.floats("n", "c", expanded=False),
        s.order("n"),
        s.floats("n", "c"),
    ),
    "index_fill": lambda s: (
        lambda x, i: x.index_fill_(1, i, 2),
        s.floats("n", "c", expanded=False),
        s.longs("k", below="c"),
    ),
    "scatter": lambda s: (
        lambda x, i, v: x.scatter_(0, i[:, None].expand(v.shape), v),
        s.floats("n", "c", expanded=False),
        s.order("n"),
        s.floats("n", "c"),
    ),
    "scatter_number": lambda s: (
        lambda x, i: x.scatter_(1, i, 2),
        s.floats("n", "c", expanded=False),
        s.longs("n", "k", below="c"),
    ),
    "scatter_add": lambda s: (
        lambda x, i, v: x.scatter_add_(1, i, v),
        s.floats("n", "c", expanded=False),
        s.longs("n", "k", below="c"),
        s.floats("n", "k"),
    ),
    "masked_fill": lambda s: (
        lambda x, m: x.masked_fill_(m, 2),
        s.floats("n", "c", expanded=False),
        s.mask("c"),
    ),
    "masked_fill_tensor": lambda s: (
        lambda x, m, v: x.masked_fill_(m, v),
        s.floats("n", "c", expanded=False),
        s.mask("n", "c"),
        s.floats(),
    ),
    "masked_scatter": lambda s: (
        lambda x, m, v: x.masked_scatter_(m, v),
        s.floats("n", "c", expanded=False),
        s.mask("n", "c"),
        s.floats("n", "c"),
    ),
    "put": lambda s: (
        lambda x, i, v: x.put_(i, v),
        s.floats("n", "c", expanded=False),
        s.order("n"),
        s.floats("n"),
    ),
}

SHAPES = {
    "cat": lambda s: (lambda a, b: torch.cat([a, b], 1), s.floats("n", "c"), s.floats("n", "k")),
    "cat_mixed": lambda s: (
        lambda a, i: torch.cat([a, i]),
        s.floats("n", "c"),
        s.longs("k", "c", below=9),
    ),
    "stack": lambda s: (lambda a, b: torch.stack([a, b], 1), s.floats("n", "c"), s.floats("n", "c")),
    "repeat": lambda s: (lambda x: x.repeat(2, 1, 3), s.floats("n", "c")),
    "repeat_interleave": lambda s: (lambda x: torch.repeat_interleave(x, 2, dim=1), s.floats("n", "c")),
    "repeat_interleave_flat": lambda s: (lambda x: torch.repeat_interleave(x, 2), s.floats("n", "c")),
    "repeat_interleave_counts": lambda s: (
        lambda x, i: torch.repeat_interleave(x.detach(), i, dim=1),
        s.floats("n", "c"),
        s.longs("c", below=4),
    ),
    "repeat_interleave_indices": lambda s: (torch.repeat_interleave, s.longs("n", below=4)),
    "roll": lambda s: (lambda x: torch.roll(x, 1), s.floats("n", "c")),
    "roll_dims": lambda s: (lambda x: torch.roll(x, (1, -2), (0, 1)), s.floats("n", "c")),
    "flip": lambda s: (lambda x: torch.flip(x, (0, 1)), s.floats("n", "c")),
    "permute": lambda s: (lambda x: x.permute(2, 0, 1).contiguous(), s.floats("n", "m", "c")),
    "split": lambda s: (lambda x: [one * 2 for one in x.split([1, 2], 1)], s.floats("n", 3)),
    "pad": lambda s: (lambda x: functional.pad(x, (1, 2, 0, 1), value=3), s.floats("n", "c")),
    "pad_reflect": lambda s: (lambda x: functional.pad(x, (1, 2), mode="reflect"), s.floats("n", 2, 4)),
    "pad_reflect_images": lambda s: (lambda x: functional.pad(x, (1, 2, 1, 1), mode="reflect"), s.floats("n", 2, 4, 4)),
    "pad_replicate": lambda s: (lambda x: functional.pad(x, (1, 2), mode="replicate"), s.floats("n", 2, 4)),
    "pad_replicate_images": lambda s: (
        lambda x: functional.pad(x, (1, 2, 1, 1), mode="replicate"),
        s.floats("n", 2, 4, 4),
    ),
    "channel_shuffle": lambda s: (lambda x: functional.channel_shuffle(x, 2), s.floats("n", 4, 2, 2)),
    "pixel_shuffle": lambda s: (lambda x: functional.pixel_shuffle(x, 2), s.floats("n", 4, 2, 2)),
}

ORDERS = {
    "sort": lambda s: (torch.sort, s.distinct("n", "c")),
    "sort_down": lambda s: (lambda x: torch.sort(x, 0, descending=True), s.distinct("n", "c")),
    "sort_stable": lambda s: (
        lambda x: torch.sort(x, stable=True),
        s.longs("n", "c", below=3),
    ),
    "argsort": lambda s: (torch.argsort, s.distinct("n", "c")),
    "topk": lambda s: (lambda x: torch.topk(x, 1), s.distinct("n", "c")),
    "topk_smallest": lambda s: (lambda x: torch.topk(x, 2, 0, largest=False), s.distinct(4, "c")),
    "kthvalue": lambda s: (lambda x: torch.kthvalue(x, 2), s.distinct("n", 4)),
    "argmax": lambda s: (torch.argmax, s.distinct("n", "c")),
    "argmax_dim": lambda s: (lambda x: torch.argmax(x, -1), s.distinct("n", "c")),
    "argmin": lambda s: (lambda x: torch.argmin(x, 0, keepdim=True), s.distinct("n", "c")),
    "unique": lambda s: (torch.unique, s.longs("n", "c", below=4)),
    "unique_all": lambda s: (
        lambda x: torch.unique(x, return_inverse=True, return_counts=True),
        s.longs("n", "c", below=4),
    ),
    "unique_rows": lambda s: (
        lambda x: torch.unique(x, dim=0, return_inverse=True, return_counts=True),
        s.longs("n", 2, below=2),
    ),
    "unique_consecutive": lambda s: (
        lambda x: torch.unique_consecutive(x, return_inverse=True, return_counts=True),
        s.longs("n", below=2),
    ),
    "searchsorted": lambda s: (
        lambda x, v: torch.searchsorted(x.flatten().sort()[0], v.contiguous(), right=True),
        s.distinct("n", "c"),
        s.distinct("m"),
    ),
    "searchsorted_number": lambda s: (lambda x: torch.searchsorted(x.sort()[0], 0.5), s.distinct("n")),
    "bucketize": lambda s: (
        lambda x, v: torch.bucketize(v.contiguous(), x.sort()[0]),
        s.distinct("n"),
        s.distinct("m"),
    ),
    "bincount": lambda s: (lambda i: torch.bincount(i, minlength=3), s.longs("n", below=6)),
}

IMAGES = {
    "conv2d": lambda s: (
        lambda x, w, b: functional.conv2d(x, w, b, padding=1, stride=2),
        s.floats("b", "c", 5, 6),
        s.floats("o", "c", 3, 3),
        s.floats("o"),
    ),
    "conv1d": lambda s: (functional.conv1d, s.floats("b", "c", 6), s.floats("o", "c", 3), s.floats("o")),
    "conv2d_grouped": lambda s: (
        lambda x, w: functional.conv2d(x, w, groups=2),
        s.floats("b", 4, 5, 5),
        s.floats(2, 2, 3, 3),
    ),
    "conv_transpose2d": lambda s: (functional.conv_transpose2d, s.floats("b", "c", 3, 3), s.floats("c", "o", 2, 2)),
    "avg_pool2d": lambda s: (lambda x: functional.avg_pool2d(x, 2, padding=1), s.floats("b", "c", 5, 6)),
    "adaptive_avg_pool2d": lambda s: (lambda x: functional.adaptive_avg_pool2d(x, 2), s.floats("b", "c", 5, 6)),
    "max_pool2d": lambda s: (
        lambda x: functional.max_pool2d(x, 3, stride=2, padding=1),
        s.distinct("b", 2, 5, 6),
    ),
    "unfold": lambda s: (lambda x: functional.unfold(x, 2), s.floats("b", "c", 3, 4)),
    "interpolate": lambda s: (lambda x: functional.interpolate(x, scale_factor=2), s.floats("b", "c", 3, 4)),
    "interpolate_bilinear": lambda s: (
        lambda x: functional.interpolate(x, size=(5, 7), mode="bilinear", align_corners=True),
        s.floats("b", "c", 3, 4),
    ),
}


@cases(PRODUCTS | NORMS | READS | SHAPES)
@given(data=st.data())
@few
def test_an_operator_and_its_gradient_equal_those_of_the_cpu(case, data):
    """An operator gives what the CPU gives, and so does its gradient, for every layout and type."""
    source = Source(data)
    check(*case(source), dtype=source.dtype)


@cases(IMAGES)
@given(data=st.data())
@few
def test_an_operator_of_images_equals_that_of_the_cpu(case, data):
    """An operator of images gives what the CPU gives, and so does its gradient."""
    check(*case(Source(data, dtypes=(torch.float32,))))


@cases(ACTIVATIONS)
@given(data=st.data())
@few
def test_an_activation_and_its_gradient_equal_those_of_the_cpu(case, data):
    """An activation gives what the CPU gives, and so does its gradient."""
    source = Source(data)
    check(case, source.floats("n", "m", "c"), dtype=source.dtype)


@cases(INPLACE_ACTIVATIONS)
@given(data=st.data())
@few
def test_an_activation_in_place_changes_what_the_cpu_changes(case, data):
    """An activation in place leaves what the CPU leaves."""
    source = Source(data)
    check(case, source.floats("n", "c", expanded=False), dtype=source.dtype, differentiable=False)


@cases(WRITES)
@given(data=st.data())
@few
def test_writing_by_index_changes_what_the_cpu_changes(case, data):
    """Writing at indices or where a mask is set leaves what the CPU leaves."""
    source = Source(data)
    function, *inputs = case(source)

    def changed(target, *others):
        function(target, *others)
        return target

    check(changed, *inputs, dtype=source.dtype, differentiable=False)


@cases(ORDERS)
@given(data=st.data())
@few
def test_order_and_search_equal_those_of_the_cpu(case, data):
    """Sorting, searching and counting give what the CPU gives, whatever shape comes out."""
    source = Source(data)
    check(*case(source), dtype=source.dtype, differentiable=False)


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@cases(LOSSES)
@given(data=st.data())
@few
def test_a_loss_and_its_gradient_equal_those_of_the_cpu(case, reduction, data):
    """A loss gives what the CPU gives, reduced or not, and so does its gradient."""
    source = Source(data, dtypes=(torch.float32,))
    check(*case(source, reduction))


def rms_norm(x, gamma, eps):
    """Return the root-mean-square norm by its formula, in float."""
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + eps) * gamma.float()).to(x.dtype)


def rotate_halves(x):
    """Return a row with its halves swapped, the second one negated."""
    a, b = x.chunk(2, -1)
    return torch.cat([-b, a], -1)


def rotate_neighbours(x):
    """Return a row with its neighbours swapped, the second ones negated."""
    return torch.stack([-x[..., 1::2], x[..., ::2]], -1).flatten(-2)


def swiglu(x):
    """Return one half of a row, gated by the other."""
    a, b = x.chunk(2, -1)
    return functional.silu(a) * b


def device_functions():
    """Return functions of torch_npu by name, each with its formula."""
    npu = torch.ops.npu
    rows = lambda s: (s.floats("b", 1, 3, 8), s.floats(1, 1, 3, 8), s.floats(1, 1, 3, 8))
    return {
        "rms_norm": (
            lambda x, g: npu.npu_rms_norm(x, g, 1e-5)[0],
            lambda x, g: rms_norm(x, g, 1e-5),
            lambda s: (s.floats("b", 8), s.floats(8)),
        ),
        "swiglu": (npu.npu_swiglu, swiglu, lambda s: (s.floats("b", 8),)),
        "rotary_mul": (npu.npu_rotary_mul, lambda x, c, n: x * c + rotate_halves(x) * n, rows),
        "rotary_mul_interleave": (
            lambda x, c, n: npu.npu_rotary_mul(x, c, n, "interleave"),
            lambda x, c, n: x * c + rotate_neighbours(x) * n,
            rows,
        ),
    }


@pytest.mark.parametrize("name", ["rms_norm", "swiglu", "rotary_mul", "rotary_mul_interleave"])
@given(data=st.data())
@few
def test_a_function_of_torch_npu_equals_its_formula(name, data):
    """A fused function of torch_npu gives what its formula gives on the CPU, and so does its gradient."""
    source = Source(data)
    fused, formula, make = device_functions()[name]
    inputs = make(source)
    got = results(fused, inputs, "npu", differentiable=True)
    torch.testing.assert_close(got, results(formula, inputs, "cpu", differentiable=True), **TOLERANCE[source.dtype])


@given(data=st.data())
@few
def test_a_residual_sum_and_its_norm_equal_their_formula(data):
    """The fused sum and norm return the norm and the sum."""
    source = Source(data)
    x, y, gamma = (source.floats(*shape) for shape in (("b", 8), ("b", 8), (8,)))
    normed, _, total = torch.ops.npu.npu_add_rms_norm(x.on("npu"), y.on("npu"), gamma.on("npu"), 1e-5)
    wanted = x.on("cpu") + y.on("cpu")
    tolerance = TOLERANCE[source.dtype]
    torch.testing.assert_close(total.cpu(), wanted, **tolerance)
    torch.testing.assert_close(normed.cpu(), rms_norm(wanted, gamma.on("cpu"), 1e-5), **tolerance)


class Block(nn.Module):
    """A small transformer that predicts tokens: rotary attention, then a gated layer."""

    def __init__(self, words=17, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.embedding = nn.Embedding(words, width)
        self.first, self.second, self.last = nn.RMSNorm(width), nn.LayerNorm(width), nn.RMSNorm(width)
        self.projections, self.merge = nn.Linear(width, 3 * width), nn.Linear(width, width, bias=False)
        self.gate, self.down = nn.Linear(width, 4 * width), nn.Linear(2 * width, width)
        self.head = nn.Linear(width, words)

    def forward(self, tokens):
        x = self.embedding(tokens)
        q, k, v = self.projections(self.first(x)).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        angle = torch.arange(tokens.shape[-1], device=x.device)[:, None] / torch.arange(
            1, q.shape[-1] + 1, device=x.device
        )
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        q, k = (one * cos + rotate_halves(one) * sin for one in (q, k))
        later = torch.ones(tokens.shape[-1], tokens.shape[-1], device=x.device).triu(1).bool()
        weights = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(later, -torch.inf).softmax(-1)
        x = x + self.merge((weights @ v).transpose(1, 2).flatten(-2))
        x = x + self.down(swiglu(self.gate(self.second(x))))
        return self.head(self.last(x))


def modules():
    """Return small networks by name, each with an input."""
    torch.manual_seed(0)
    return {
        "block": (Block(), torch.randint(17, (2, 5))),
        "transformer_layer": (nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), torch.randn(2, 5, 16)),
        "images": (
            nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
            torch.randn(2, 3, 8, 8),
        ),
        "perceptron": (nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 4)), torch.randn(3, 16)),
    }


@pytest.mark.parametrize("name", ["block", "transformer_layer", "images", "perceptron"])
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@torch.no_grad()
def test_a_network_computes_what_it_computes_on_the_cpu(name, dtype):
    """A network gives the same results on both devices, in every type."""
    net, value = modules()[name]
    net = net.eval().to(dtype)
    value = value.to(dtype) if value.is_floating_point() else value
    wanted = net(value)
    torch.testing.assert_close(net.npu()(value.npu()).cpu(), wanted, **TOLERANCE[dtype])


# Not the layer of torch: its fast path is not an operator of torch_npu, so it computes on the CPU.
@pytest.mark.parametrize("name", ["block", "images", "perceptron"])
@torch.no_grad()
def test_a_captured_network_computes_with_each_new_input(name):
    """A captured network gives, at each replay, what it gives for the input that was written before."""
    net, value = modules()[name]
    net = net.eval()
    place = value.npu()
    others = [value, value.flip(0), value.flip(1)]
    wanted = [net(one) for one in others]
    net.npu()(place)  # what is made once is made before
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        result = net(place)
    for one, expected in zip(others, wanted, strict=True):
        place.copy_(one)
        graph.replay()
        torch.testing.assert_close(result.cpu(), expected, **TOLERANCE[torch.float32])


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, lr=0.1),
    "sgd_momentum": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, nesterov=True),
    "sgd_one_by_one": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, foreach=False),
    "sgd_fused": lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1, dampening=0.2, fused=True),
    "adam": lambda p: torch.optim.Adam(p, lr=0.01),
    "adam_one_by_one": lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
    "adamw": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True),
    "adamw_fused": lambda p: torch.optim.AdamW(p, lr=0.01, weight_decay=0.2, fused=True),
    "adamw_fused_greatest": lambda p: torch.optim.AdamW(p, lr=0.01, amsgrad=True, maximize=True, fused=True),
    "rmsprop": lambda p: torch.optim.RMSprop(p, lr=0.01),
    "adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "nadam": lambda p: torch.optim.NAdam(p, lr=0.01),
}


@cases(OPTIMIZERS)
def test_training_takes_the_steps_that_it_takes_on_the_cpu(case):
    """A few steps of an optimizer leave the parameters that they leave on the CPU."""
    trained = []
    for device in ("cpu", "npu"):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.LayerNorm(8), nn.Linear(8, 3))
        values, labels = torch.randn(5, 6).to(device), torch.randint(3, (5,)).to(device)
        optimizer = case(net.to(device).parameters())
        for _ in range(3):
            optimizer.zero_grad()
            functional.cross_entropy(net(values), labels).backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            optimizer.step()
        trained.append([one.detach().cpu() for one in net.parameters()])
    torch.testing.assert_close(trained[1], trained[0], **TOLERANCE[torch.float32])


def test_a_scaler_of_losses_skips_steps_that_are_not_finite():
    """A scaler steps where gradients are finite; where they are not it skips the step and halves its scale."""
    weight = torch.ones(2, device="npu", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("npu", init_scale=8.0)
    seen = []
    for factor in (0.25, torch.inf):
        optimizer.zero_grad()
        scaler.scale((weight * factor).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        seen.append((weight.tolist(), scaler.get_scale()))
    assert seen == [([0.75, 0.75], 8.0), ([0.75, 0.75], 4.0)]
