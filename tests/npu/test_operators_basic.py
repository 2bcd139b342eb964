"""Everyday operators give on the device what torch gives on the CPU, whatever the shape, the layout and the type."""

import attrs
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
INTEGERS = (torch.int32, torch.int64)
NUMBERS = FLOATS + INTEGERS
ALL = (*NUMBERS, torch.bool)
EXACT = {"rtol": 0, "atol": 0}
CLOSE = {}  # what torch.testing allows for the type

few = settings(max_examples=12, deadline=None)
seeds = st.integers(0, 2**32 - 1)
shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)
shapes_of_some = st.lists(st.integers(1, 4), max_size=3).map(tuple)
shapes_of_rows = st.lists(st.integers(1, 4), min_size=1, max_size=3).map(tuple)


@attrs.frozen
class Strided:
    """A tensor that can be laid out the same way on each device."""

    storage: torch.Tensor = attrs.field(eq=False)
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    def of(self, storage):
        """Return the tensor in a storage of this size."""
        return storage.as_strided(self.shape, self.strides, self.offset)

    def on(self, device):
        """Return the tensor on a device."""
        return self.of(self.storage.to(device))


def numbers(count, dtype, seed, *, special=False):
    """Return numbers that every type holds exactly, ties and zeros among them; special ones are infinite, or NaN."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randint(-40, 41, (count,), generator=generator)
    if dtype is torch.bool:
        return values > 0
    if not dtype.is_floating_point:
        return values.to(dtype)
    values = values / 8
    if special:
        for value in (torch.nan, torch.inf, -torch.inf):
            values[torch.rand(count, generator=generator) < 0.1] = value
    return values.to(dtype)


@st.composite
def layouts(draw, dtypes, shapes=shapes, *, expanded=True, special=True):
    """Draw a tensor: dimensions in any order, with gaps or without, from any offset, and perhaps expanded."""
    shape = draw(shapes)
    strides = [0] * len(shape)
    step = draw(st.integers(1, 2))
    for dim in draw(st.permutations(range(len(shape)))):
        strides[dim] = step
        step *= max(shape[dim], 1)
    if expanded and shape and draw(st.booleans()):
        strides[draw(st.integers(0, len(shape) - 1))] = 0
    offset = draw(st.integers(0, 3))
    count = offset + 1 + sum(max(size - 1, 0) * stride for size, stride in zip(shape, strides, strict=True))
    storage = numbers(count, draw(st.sampled_from(dtypes)), draw(seeds), special=special and draw(st.booleans()))
    return Strided(storage, shape, tuple(strides), offset)


@st.composite
def broadcastable(draw, count, dtypes, *, mixed=False, special=True):
    """Draw tensors whose shapes broadcast together, of one type or of several."""
    shape = draw(shapes)
    one = (draw(st.sampled_from(dtypes)),)
    kinds = dtypes if mixed else one

    def parts():
        kept = [1 if draw(st.booleans()) else size for size in shape]
        return st.just(tuple(kept[draw(st.integers(0, len(shape))) :]))

    return [draw(layouts(kinds, parts(), special=special)) for _ in range(count)]


def moved(value):
    """Return a result with every tensor on the CPU."""
    if isinstance(value, torch.Tensor):
        return value.cpu()
    return [moved(one) for one in value] if isinstance(value, (tuple, list)) else value


def check(function, *inputs, tolerance=EXACT):
    """Compare what a function gives for the same tensors on both devices."""
    wanted = moved(function(*[one.on("cpu") for one in inputs]))
    got = function(*[one.on("npu") for one in inputs])
    assert all(one.device.type == "npu" for one in (got if isinstance(got, (tuple, list)) else [got]))
    torch.testing.assert_close(moved(got), wanted, equal_nan=True, **tolerance)


def check_inplace(function, target, *inputs, tolerance=EXACT):
    """Compare the whole storage after a function changed a tensor in it."""
    stores = {device: target.storage.to(device, copy=True) for device in ("cpu", "npu")}
    for device, storage in stores.items():
        function(target.of(storage), *[one.on(device) for one in inputs])
    torch.testing.assert_close(stores["npu"].cpu(), stores["cpu"], equal_nan=True, **tolerance)


def cases(table):
    """Return the parameters of a table, with its names as ids."""
    return pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in table.items()])


def functions(names, dtypes, tolerance):
    """Return functions of torch by name, with the types they take and how near the device comes."""
    return {name: (getattr(torch, name), dtypes, tolerance) for name in names.split()}


def methods(names):
    """Return methods of tensors by name."""
    return {name: getattr(torch.Tensor, name) for name in names.split()}


UNARY = {
    **functions(
        "rsqrt exp exp2 expm1 log log2 log10 log1p erf erfc erfinv sin cos tan asin acos atan sinh cosh tanh asinh "
        "acosh atanh sinc sigmoid",
        FLOATS,
        CLOSE,
    ),
    **functions("sqrt reciprocal frac nan_to_num signbit", FLOATS, EXACT),
    **functions("abs neg sign square floor ceil round trunc", NUMBERS, EXACT),
    **functions("isnan isinf isfinite isposinf isneginf", ALL, EXACT),
    "bitwise_not": (torch.bitwise_not, (*INTEGERS, torch.bool), EXACT),
    "logical_not": (torch.logical_not, ALL, EXACT),
    "round decimals": (lambda x: torch.round(x, decimals=1), (torch.float32,), CLOSE),
    "clamp": (lambda x: x.clamp(-2, 3), NUMBERS, EXACT),
    "clamp min": (lambda x: x.clamp(min=-1), NUMBERS, EXACT),
    "clamp max": (lambda x: x.clamp(max=1), NUMBERS, EXACT),
    "logit": (lambda x: torch.logit(x, 1e-6), (torch.float32,), CLOSE),
}


@cases(UNARY)
@few
@given(data=st.data())
def test_functions_of_one_tensor(case, data):
    """A function of one tensor gives the CPU's result."""
    function, dtypes, tolerance = case
    check(function, data.draw(layouts(dtypes)), tolerance=tolerance)


UNARY_INPLACE = {
    **methods(
        "abs_ neg_ sqrt_ rsqrt_ exp_ log_ sin_ cos_ tan_ tanh_ sigmoid_ erf_ floor_ ceil_ round_ trunc_ reciprocal_ "
        "sign_ square_ frac_ nan_to_num_ logical_not_ zero_",
    ),
    "fill_": lambda x: x.fill_(1.5),
    "fill_ with a tensor": lambda x: x.fill_(torch.tensor(2.0, device=x.device)),
    "fill with one": lambda x: x.fill_(1),
    "clamp_": lambda x: x.clamp_(-1, 2),
    "clamp_min_": lambda x: x.clamp_min_(0.5),
    "clamp_max_": lambda x: x.clamp_max_(0.5),
    "pow_": lambda x: x.pow_(2),
}


@cases(UNARY_INPLACE)
@few
@given(target=layouts(FLOATS, expanded=False))
def test_functions_that_change_a_tensor(case, target):
    """A function in place changes the tensor's elements, and no other element of its storage."""
    check_inplace(case, target, tolerance=CLOSE)


BINARY = {
    "add": (torch.add, ALL, EXACT),
    "add alpha": (lambda a, b: torch.add(a, b, alpha=3), NUMBERS, EXACT),
    "sub": (torch.sub, NUMBERS, EXACT),
    "sub alpha": (lambda a, b: torch.sub(a, b, alpha=2), NUMBERS, EXACT),
    "rsub": (torch.rsub, NUMBERS, EXACT),
    "mul": (torch.mul, ALL, EXACT),
    "div": (torch.div, ALL, EXACT),
    "div trunc": (lambda a, b: torch.div(a, b, rounding_mode="trunc"), FLOATS, EXACT),
    "div floor": (lambda a, b: torch.div(a, b, rounding_mode="floor"), FLOATS, EXACT),
    "floor_divide": (torch.floor_divide, FLOATS, EXACT),
    "fmod": (torch.fmod, FLOATS, EXACT),
    "remainder": (torch.remainder, FLOATS, EXACT),
    "pow": (torch.pow, FLOATS, CLOSE),
    "atan2": (torch.atan2, FLOATS, CLOSE),
    "logaddexp": (torch.logaddexp, FLOATS, CLOSE),
    "xlogy": (torch.xlogy, FLOATS, CLOSE),
    "maximum": (torch.maximum, ALL, EXACT),
    "minimum": (torch.minimum, ALL, EXACT),
    "max of two": (torch.max, ALL, EXACT),
    **functions("eq ne lt le gt ge logical_and logical_or logical_xor", ALL, EXACT),
    **functions("bitwise_and bitwise_or bitwise_xor", (*INTEGERS, torch.bool), EXACT),
    "isclose": (torch.isclose, NUMBERS, EXACT),
    "isclose nan": (lambda a, b: torch.isclose(a, b, equal_nan=True), FLOATS, EXACT),
    "where": (lambda a, b: torch.where(a > 0, a, b), NUMBERS, EXACT),
    "clamp by tensors": (torch.clamp, NUMBERS, EXACT),
    "copysign": (torch.copysign, FLOATS, EXACT),
}


@cases(BINARY)
@few
@given(data=st.data())
def test_functions_of_two_tensors(case, data):
    """A function of two tensors broadcasts them, and gives the CPU's result."""
    function, dtypes, tolerance = case
    check(function, *data.draw(broadcastable(2, dtypes)), tolerance=tolerance)


@pytest.mark.parametrize("name", ["add", "sub", "mul", "div", "eq", "lt", "maximum"])
@few
@given(data=st.data())
def test_types_are_promoted(name, data):
    """Tensors of two types give the CPU's type, and its numbers."""
    check(getattr(torch, name), *data.draw(broadcastable(2, NUMBERS, mixed=True)))


DIVISIONS = {
    "div trunc": lambda a, b: torch.div(a, b, rounding_mode="trunc"),
    "div floor": lambda a, b: torch.div(a, b, rounding_mode="floor"),
    "floor_divide": torch.floor_divide,
    "fmod": torch.fmod,
    "remainder": torch.remainder,
}


@cases(DIVISIONS)
@few
@given(pair=broadcastable(2, INTEGERS))
def test_divisions_of_integers(case, pair):
    """Integers are divided as on the CPU, by anything but zero."""
    check(lambda a, b: case(a, torch.where(b == 0, torch.ones_like(b), b)), *pair)


WITH_NUMBER = {
    "add": (lambda x: x + 2, NUMBERS),
    "add float": (lambda x: x + 0.5, NUMBERS),
    "add alpha": (lambda x: torch.add(x, 2, alpha=3), NUMBERS),
    "sub": (lambda x: x - 3, NUMBERS),
    "rsub": (lambda x: 3 - x, NUMBERS),
    "mul": (lambda x: x * 3, NUMBERS),
    "mul float": (lambda x: x * 0.1, NUMBERS),
    "div": (lambda x: x / 3, NUMBERS),
    "div floor": (lambda x: torch.div(x, 3, rounding_mode="floor"), NUMBERS),
    "div trunc": (lambda x: torch.div(x, 3, rounding_mode="trunc"), NUMBERS),
    "floor_divide": (lambda x: x // 3, NUMBERS),
    "remainder": (lambda x: x % 3, NUMBERS),
    "remainder of a number": (lambda x: torch.remainder(7.0, x), FLOATS),
    "fmod": (lambda x: torch.fmod(x, 3), NUMBERS),
    "reciprocal": (lambda x: 2 / x, FLOATS),
    "pow": (lambda x: x**2, NUMBERS),
    "pow of a number": (lambda x: 2**x, FLOATS),
    "eq": (lambda x: x == 1, ALL),
    "ne": (lambda x: x != 1, ALL),
    "lt": (lambda x: x < 1, ALL),
    "le": (lambda x: x <= 1, ALL),
    "gt": (lambda x: x > 1, ALL),
    "ge": (lambda x: x >= 1, ALL),
    "and": (lambda x: x & 5, INTEGERS),
    "or": (lambda x: x | 5, INTEGERS),
    "xor": (lambda x: x ^ 5, INTEGERS),
    "shift left": (lambda x: x << 2, INTEGERS),
    "shift right": (lambda x: x >> 2, INTEGERS),
    "where": (lambda x: torch.where(x > 0, x, 0), NUMBERS),
    "masked_fill": (lambda x: x.masked_fill(x > 0, 7), NUMBERS),
    "xlogy": (lambda x: torch.xlogy(x, 2.0), FLOATS),
    "isin": (lambda x: torch.isin(x, 1), INTEGERS),
    "tensor of one number": (lambda x: x * torch.tensor(3), NUMBERS),
}


@cases(WITH_NUMBER)
@few
@given(data=st.data())
def test_functions_of_a_tensor_and_a_number(case, data):
    """A number takes part in the CPU's way: it does not widen the type."""
    function, dtypes = case
    check(function, data.draw(layouts(dtypes)), tolerance=CLOSE)


BINARY_INPLACE = {
    **methods("add_ sub_ mul_ div_ floor_divide_ fmod_ remainder_ pow_ atan2_ eq_ lt_ logical_and_ copy_"),
    "add_ a number": lambda x, _: x.add_(2, alpha=3),
    "sub_ a number": lambda x, _: x.sub_(2),
    "mul_ a number": lambda x, _: x.mul_(3),
    "div_ a number": lambda x, _: x.div_(3),
    "div_ floor": lambda x, y: x.div_(y, rounding_mode="floor"),
    "ge_ a number": lambda x, _: x.ge_(1),
    "lerp_": lambda x, y: x.lerp_(y, 0.25),
    "addcmul_": lambda x, y: x.addcmul_(y, y, value=2),
    "masked_fill_": lambda x, y: x.masked_fill_(y > 0, 5),
    "clamp_ by a tensor": lambda x, y: x.clamp_(min=y),
}


@st.composite
def target_and_source(draw, dtypes):
    """Draw a tensor, and one that broadcasts to it."""
    target = draw(layouts(dtypes, expanded=False, special=False))
    shape = tuple(1 if draw(st.booleans()) else size for size in target.shape)
    return target, draw(layouts((target.storage.dtype,), st.just(shape), special=False))


@cases(BINARY_INPLACE)
@few
@given(pair=target_and_source(FLOATS))
def test_functions_that_change_the_first_tensor(case, pair):
    """A function in place of two tensors changes the first one's elements, and no other element of its storage."""
    check_inplace(case, *pair, tolerance=CLOSE)


OUT = {
    "add": torch.add,
    "mul": torch.mul,
    "div": torch.div,
    "maximum": torch.maximum,
    "lt": lambda a, b, out: torch.lt(a, b, out=out),
    "exp": lambda a, _, out: torch.exp(a, out=out),
    "neg": lambda a, _, out: torch.neg(a, out=out),
}


@cases(OUT)
@few
@given(pair=target_and_source(FLOATS))
def test_results_go_where_they_are_told(case, pair):
    """A result is written with the strides of the tensor that is given for it."""
    check_inplace(lambda out, source: case(out.clone(), source, out=out), *pair, tolerance=CLOSE)


TERNARY = {
    "addcmul": lambda a, b, c: torch.addcmul(a, b, c, value=0.5),
    "addcdiv": lambda a, b, c: torch.addcdiv(a, b, c, value=0.5),
    "lerp": torch.lerp,
    "clamp": torch.clamp,
    "where": lambda a, b, c: torch.where(a > 0, b, c),
}


@cases(TERNARY)
@few
@given(inputs=broadcastable(3, FLOATS))
def test_functions_of_three_tensors(case, inputs):
    """A function of three tensors broadcasts them, and gives the CPU's result."""
    check(case, *inputs, tolerance=CLOSE)


REDUCTIONS = {
    "sum": (torch.sum, ALL, CLOSE),
    "nansum": (torch.nansum, FLOATS, CLOSE),
    "mean": (torch.mean, FLOATS, CLOSE),
    "var": (torch.var, FLOATS, CLOSE),
    "std": (torch.std, FLOATS, CLOSE),
    "var of all": (lambda x, **how: torch.var(x, correction=0, **how), FLOATS, CLOSE),
    "var with a correction of 2": (lambda x, **how: torch.var(x, correction=2, **how), FLOATS, CLOSE),
    "std_mean": (torch.std_mean, FLOATS, CLOSE),
    "var_mean": (torch.var_mean, FLOATS, CLOSE),
    "amax": (torch.amax, ALL, EXACT),
    "amin": (torch.amin, ALL, EXACT),
    "all": (torch.all, ALL, EXACT),
    "any": (torch.any, ALL, EXACT),
    "logsumexp": (torch.logsumexp, FLOATS, CLOSE),
    "norm": (lambda x, **how: torch.norm(x, 2, **how), FLOATS, CLOSE),
    "vector_norm": (torch.linalg.vector_norm, FLOATS, CLOSE),
    "vector_norm 1": (lambda x, **how: torch.linalg.vector_norm(x, 1, **how), FLOATS, CLOSE),
    "vector_norm inf": (lambda x, **how: torch.linalg.vector_norm(x, torch.inf, **how), FLOATS, CLOSE),
}


@pytest.mark.filterwarnings("ignore:.*degrees of freedom")  # of one element
@cases(REDUCTIONS)
@few
@given(data=st.data())
def test_reductions_over_dimensions(case, data):
    """Reducing some dimensions, or all of them, gives the CPU's result."""
    function, dtypes, tolerance = case
    tensor = data.draw(layouts(dtypes, shapes_of_rows))
    dims = st.lists(st.integers(0, len(tensor.shape) - 1), min_size=1, unique=True).map(tuple)
    how = {"dim": data.draw(dims), "keepdim": data.draw(st.booleans())}
    check(lambda x: function(x, **how), tensor, tolerance=tolerance)


def median(x, dim):
    """Return the median; torch's own, on the CPU, reads past the end of an expanded dimension."""
    return torch.median(x.contiguous() if x.device.type == "cpu" else x, dim)


ONE_DIMENSION = {
    "prod": (torch.prod, FLOATS, CLOSE),
    "max": (torch.max, NUMBERS, EXACT),
    "min": (torch.min, NUMBERS, EXACT),
    "median": (median, NUMBERS, EXACT),
    "aminmax": (lambda x, dim: torch.aminmax(x, dim=dim), NUMBERS, EXACT),
    "cumsum": (torch.cumsum, NUMBERS, CLOSE),
    "cumprod": (torch.cumprod, FLOATS, CLOSE),
    "cummax": (torch.cummax, FLOATS, EXACT),
    "cummin": (torch.cummin, FLOATS, EXACT),
    "renorm": (lambda x, dim: torch.renorm(torch.atleast_2d(x), 2, dim, 1.0), (torch.float32,), CLOSE),
}


@cases(ONE_DIMENSION)
@few
@given(data=st.data())
def test_reductions_along_one_dimension(case, data):
    """Reducing along one dimension, or running along it, gives the CPU's result."""
    function, dtypes, tolerance = case
    tensor = data.draw(layouts(dtypes, shapes_of_rows))
    dim = data.draw(st.integers(0, len(tensor.shape) - 1))
    check(lambda x: tuple(out) if isinstance(out := function(x, dim), tuple) else out, tensor, tolerance=tolerance)


WHOLE = {
    "sum": (torch.sum, ALL, CLOSE),
    "sum in float": (lambda x: torch.sum(x, dtype=torch.float32), ALL, CLOSE),
    "mean": (torch.mean, FLOATS, CLOSE),
    "prod": (torch.prod, FLOATS, CLOSE),
    "std": (lambda x: torch.std(x, correction=0), FLOATS, CLOSE),
    "max": (torch.max, NUMBERS, EXACT),
    "min": (torch.min, NUMBERS, EXACT),
    "aminmax": (lambda x: tuple(torch.aminmax(x)), NUMBERS, EXACT),
    "median": (torch.median, NUMBERS, EXACT),
    "all": (torch.all, ALL, EXACT),
    "any": (torch.any, ALL, EXACT),
    "norm": (torch.norm, FLOATS, CLOSE),
}


@cases(WHOLE)
@few
@given(data=st.data())
def test_reductions_of_the_whole(case, data):
    """Reducing every element to one gives the CPU's result, of a tensor with no dimensions too."""
    function, dtypes, tolerance = case
    check(function, data.draw(layouts(dtypes, shapes_of_some)), tolerance=tolerance)


EMPTY = {"sum": torch.sum, "prod": torch.prod, "all": torch.all, "any": torch.any, "mean": torch.mean}


@cases(EMPTY)
def test_reductions_of_nothing(case):
    """Reducing a tensor without elements gives the neutral element, or NaN."""
    check(case, Strided(torch.empty(1), (2, 0, 3), (0, 3, 1), 0))


CREATION = {
    "zeros": lambda device: torch.zeros(2, 3, device=device),
    "ones": lambda device: torch.ones(2, 3, dtype=torch.float16, device=device),
    "full": lambda device: torch.full((2, 3), 1.25, device=device),
    "full of integers": lambda device: torch.full((2, 3), 7, device=device),
    "full of booleans": lambda device: torch.full((2,), fill_value=True, device=device),
    "full bfloat16": lambda device: torch.full((2, 3), 1.25, dtype=torch.bfloat16, device=device),
    "zeros_like": lambda device: torch.zeros_like(torch.ones(3, 2, device=device)),
    "full_like": lambda device: torch.full_like(torch.ones(3, 2, device=device), 4),
    "new_full": lambda device: torch.ones(1, device=device).new_full((2,), 3.5),
    "arange": lambda device: torch.arange(7, device=device),
    "arange in steps": lambda device: torch.arange(1, 10, 3, device=device),
    "arange down": lambda device: torch.arange(5, 0, -2, device=device),
    "arange of floats": lambda device: torch.arange(0.5, 3, 0.25, device=device),
    "arange int32": lambda device: torch.arange(5, dtype=torch.int32, device=device),
    "arange bfloat16": lambda device: torch.arange(5, dtype=torch.bfloat16, device=device),
    "arange of nothing": lambda device: torch.arange(0, device=device),
    "linspace": lambda device: torch.linspace(-1, 2, 9, device=device),
    "logspace": lambda device: torch.logspace(0, 3, 4, device=device),
    "eye": lambda device: torch.eye(3, device=device),
    "eye of two sizes": lambda device: torch.eye(3, 5, device=device),
    "tril": lambda device: torch.ones(4, 4, device=device).tril(),
    "triu": lambda device: torch.ones(2, 4, 5, device=device).triu(1),
    "causal mask": lambda device: torch.triu(torch.ones(5, 5, dtype=torch.bool, device=device), diagonal=1),
    "tril_": lambda device: torch.ones(4, 4, device=device).tril_(-1),
    "scalar tensor": lambda device: torch.tensor(3.5, device=device),
    "list": lambda device: torch.tensor([[1, 2], [3, 4]], device=device),
    "complex": lambda device: torch.complex(torch.ones(3, device=device), torch.arange(3.0, device=device)),
    "polar": lambda device: torch.polar(torch.ones(3, device=device), torch.arange(3.0, device=device)),
    "fill_diagonal_": lambda device: torch.zeros(3, 4, device=device).fill_diagonal_(2),
    "meshgrid": lambda device: torch.stack(
        torch.meshgrid(torch.arange(3, device=device), torch.arange(2, device=device), indexing="ij")
    ),
}


@cases(CREATION)
def test_creation(case):
    """A tensor made on the device has the CPU's numbers and type."""
    torch.testing.assert_close(case("npu").cpu(), case("cpu"))


@few
@given(tensor=layouts(ALL), dtype=st.sampled_from(ALL))
def test_casts(tensor, dtype):
    """A cast gives what the CPU's cast gives."""
    if tensor.storage.is_floating_point() and not dtype.is_floating_point:
        tensor = attrs.evolve(tensor, storage=tensor.storage.nan_to_num(1, 2, 3))  # others have no integer
    check(lambda x: x.to(dtype), tensor)


@few
@given(tensor=layouts(ALL), target=st.sampled_from(ALL))
def test_casts_on_the_way(tensor, target):
    """A copy between devices that changes the type and the layout gives the CPU's numbers, both ways."""
    if tensor.storage.is_floating_point() and not target.is_floating_point:
        tensor = attrs.evolve(tensor, storage=tensor.storage.nan_to_num(1, 2, 3))
    wanted = tensor.on("cpu").to(target)
    torch.testing.assert_close(tensor.on("cpu").to("npu", target).cpu(), wanted, equal_nan=True, **EXACT)
    torch.testing.assert_close(tensor.on("npu").to("cpu", target), wanted, equal_nan=True, **EXACT)


COPIES = {
    "contiguous": lambda x: x.contiguous(),
    "clone": lambda x: x.clone(),
    "clone contiguous": lambda x: x.clone(memory_format=torch.contiguous_format),
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.transpose(0, -1).contiguous(),
    "slice": lambda x: x[1:],
    "steps": lambda x: x[..., ::2].contiguous(),
    "select": lambda x: x[0],
    "ellipsis": lambda x: x[..., -1],
    "new dimension": lambda x: x[None, :, None],
    "expand": lambda x: x.unsqueeze(0).expand(3, *x.shape).contiguous(),
    "to the host and back": lambda x: x.cpu().to(x.device),
    "chunks": lambda x: x.chunk(2)[0],
    "unbind": lambda x: x.unbind(-1)[0],
    "flatten": lambda x: x.flatten(),
    "diagonal": lambda x: torch.atleast_2d(x).diagonal().contiguous(),
}


@cases(COPIES)
@few
@given(tensor=layouts(ALL, shapes_of_rows))
def test_views_and_copies(case, tensor):
    """Copies follow the strides of what they copy; slices are views of it."""
    check(case, tensor)


@few
@given(pair=target_and_source(ALL), other=st.sampled_from(ALL))
def test_copies_into_a_view(pair, other):
    """A copy into a view changes the view's elements, from any type and from the host as well."""
    target, source = pair
    check_inplace(lambda x, y: x.copy_(y.to(other)), target, source)
    check_inplace(lambda x, y: x.copy_(y.cpu()), target, source)


def test_assignment_to_slices():
    """Numbers and tensors are assigned to slices as on the CPU."""

    def story(device):
        x = torch.zeros(4, 5, device=device)
        x[1] = 1
        x[:, 2] = torch.arange(4.0, device=device)
        x[2:, ::2] += 3
        x[x > 3] = -1
        return x

    torch.testing.assert_close(story("npu").cpu(), story("cpu"))


@pytest.mark.parametrize("pinned", [False, True])
def test_pinned_copies(pinned):
    """Copies from and to the host that do not block are complete after a synchronization."""
    host = torch.arange(24.0).reshape(4, 6)
    host = host.pin_memory() if pinned else host
    device = host.to("npu", non_blocking=True)
    back = torch.empty_like(host).copy_(device * 2, non_blocking=True)
    torch.npu.synchronize()
    assert torch.equal(back, host * 2)


@pytest.mark.parametrize("dtype", [*ALL, torch.uint8, torch.int8, torch.int16, torch.float64, torch.complex64], ids=str)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (3, 4)], ids=str)
def test_tensors_are_shown(dtype, shape):
    """A tensor on the device is shown as on the CPU, with its device."""
    host = torch.arange(12).sub(4).abs()[: torch.Size(shape).numel()].reshape(shape).to(dtype)
    shown = repr(host.npu())
    assert "device='npu:0'" in shown
    assert "".join(shown.split()).replace(",device='npu:0'", "") == "".join(repr(host).split())


def test_large_tensors_are_shown_in_part():
    """Only the ends of a large tensor are shown."""
    assert "..." in repr(torch.randn(100, 100, device="npu"))


def test_floats_are_shown():
    """Fractions, infinities and NaN are shown as on the CPU."""
    host = torch.tensor([[1e-5, 1e5, torch.nan], [-1.5, torch.inf, 0]])
    assert repr(host.npu()).replace(", device='npu:0'", "").split() == repr(host).split()


@pytest.mark.parametrize("dtype", ALL, ids=str)
def test_numbers_reach_the_host(dtype):
    """Elements and lists are read as Python numbers."""
    host = torch.tensor([0, 1, 2]).to(dtype)
    assert host.npu()[1].item() == host[1].item()
    assert host.npu().tolist() == host.tolist()
    assert bool(host.npu()[0]) is False


def test_tensors_are_compared():
    """Equality and closeness are told on the device."""
    a = torch.arange(6.0, device="npu").reshape(2, 3)
    assert torch.equal(a, a.clone())
    assert not torch.equal(a, a + 1)
    assert not torch.equal(a, a[0])
    assert torch.allclose(a, a + 1e-9)
    assert not torch.allclose(a, a + 1e-2)
    torch.testing.assert_close(a, a + 1e-7)
    with pytest.raises(AssertionError, match="not close"):
        torch.testing.assert_close(a, a + 1)


RANDOM = {
    "rand": lambda: torch.rand(50, device="npu"),
    "rand bfloat16": lambda: torch.rand(50, dtype=torch.bfloat16, device="npu"),
    "randn": lambda: torch.randn(50, device="npu"),
    "randn half": lambda: torch.randn(50, dtype=torch.float16, device="npu"),
    "randint": lambda: torch.randint(0, 1000, (50,), device="npu"),
    "randint int32": lambda: torch.randint(5, 1000, (50,), dtype=torch.int32, device="npu"),
    "randperm": lambda: torch.randperm(50, device="npu"),
    "uniform_": lambda: torch.empty(50, device="npu").uniform_(-1, 1),
    "normal_": lambda: torch.empty(50, device="npu").normal_(2, 3),
    "normal of tensors": lambda: torch.normal(torch.zeros(50, device="npu"), torch.ones(50, device="npu")),
    "normal of a mean": lambda: torch.normal(torch.zeros(50, device="npu"), 2.0),
    "normal of a deviation": lambda: torch.normal(0.0, torch.ones(50, device="npu")),
    "normal of numbers": lambda: torch.normal(0.0, 1.0, (50,), device="npu"),
    "random_": lambda: torch.empty(50, dtype=torch.int64, device="npu").random_(),
    "random_ in a range": lambda: torch.empty(50, dtype=torch.int64, device="npu").random_(3, 90),
    "bernoulli": lambda: torch.bernoulli(torch.full((50,), 0.5, device="npu")),
    "bernoulli_": lambda: torch.empty(50, device="npu").bernoulli_(0.5),
    "exponential_": lambda: torch.empty(50, device="npu").exponential_(1.5),
    "multinomial": lambda: torch.multinomial(torch.ones(50, device="npu"), 30),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(50, device="npu"), 0.5),
}


@cases(RANDOM)
def test_seeds_repeat_random_numbers(case):
    """The same seed gives the same numbers again, and the next call gives others."""
    torch.npu.manual_seed(7)
    first, second = case().cpu(), case().cpu()
    torch.npu.manual_seed(7)
    assert torch.equal(case().cpu(), first)
    assert not torch.equal(first, second)
    torch.npu.manual_seed(8)
    assert not torch.equal(case().cpu(), first)


def test_generators_are_independent():
    """A generator of its own draws what its seed says, and leaves the default one alone."""
    own = torch.Generator(device="npu").manual_seed(3)
    torch.npu.manual_seed(1)
    wanted = torch.rand(9, device="npu")
    torch.npu.manual_seed(1)
    first = torch.rand(9, device="npu", generator=own)
    assert torch.equal(torch.rand(9, device="npu"), wanted)
    assert torch.equal(torch.rand(9, device="npu", generator=own.manual_seed(3)), first)


DISTRIBUTIONS = {
    "uniform": (lambda n: torch.empty(n, device="npu").uniform_(-1, 3), 1, 4 / 12**0.5, (-1, 3)),
    "normal": (lambda n: torch.empty(n, device="npu").normal_(2, 3), 2, 3, (-torch.inf, torch.inf)),
    "randint": (lambda n: torch.randint(0, 3, (n,), device="npu"), 1, (2 / 3) ** 0.5, (0, 2)),
    "bernoulli": (lambda n: torch.empty(n, device="npu").bernoulli_(0.25), 0.25, (3 / 16) ** 0.5, (0, 1)),
    "bernoulli of tensors": (lambda n: torch.full((n,), 0.25, device="npu").bernoulli(), 0.25, (3 / 16) ** 0.5, (0, 1)),
    "exponential": (lambda n: torch.empty(n, device="npu").exponential_(2), 0.5, 0.5, (0, torch.inf)),
    "dropout": (lambda n: torch.nn.functional.dropout(torch.ones(n, device="npu"), 0.2), 1, 0.5, (0, 1.25)),
}


@cases(DISTRIBUTIONS)
def test_distributions(case):
    """Random numbers have the mean, the deviation and the bounds of their distribution."""
    draw, mean, deviation, (low, high) = case
    torch.npu.manual_seed(5)
    drawn = draw(20_000).cpu().double()
    assert abs(drawn.mean() - mean) < 5 * deviation / 20_000**0.5
    assert abs(drawn.std() / deviation - 1) < 0.05
    assert drawn.min() >= low
    assert drawn.max() <= high


def test_permutations():
    """A random permutation holds every number once."""
    assert torch.equal(torch.randperm(100, device="npu").sort().values.cpu(), torch.arange(100))


def test_dropout_keeps_its_mask_for_the_gradient():
    """The gradient of dropout is what the forward pass did to ones."""
    x = torch.ones(1000, device="npu", requires_grad=True)
    y = torch.nn.functional.dropout(x, 0.3)
    y.sum().backward()
    torch.testing.assert_close(x.grad.cpu(), y.detach().cpu())


CAPTURED = {name: RANDOM[name] for name in ("rand", "randn", "dropout", "randint", "exponential_")}


@cases(CAPTURED)
def test_captured_random_numbers(case):
    """Each replay draws other numbers, which the seed before the replays decides."""
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        out = case()

    def replay():
        graph.replay()
        torch.npu.synchronize()
        return out.cpu()

    torch.npu.manual_seed(7)
    first, second = replay(), replay()
    torch.npu.manual_seed(7)
    assert not torch.equal(first, second)
    assert torch.equal(replay(), first)


FOREACH = {
    "add": lambda xs, ys: torch._foreach_add(xs, ys, alpha=2),
    "sub": torch._foreach_sub,
    "mul": torch._foreach_mul,
    "div": torch._foreach_div,
    "maximum": torch._foreach_maximum,
    "add a number": lambda xs, _: torch._foreach_add(xs, 2.0),
    "mul numbers": lambda xs, _: torch._foreach_mul(xs, [2.0, 3.0]),
    "clamp_max": lambda xs, _: torch._foreach_clamp_max(xs, 1.0),
    "pow": lambda xs, _: torch._foreach_pow(xs, 2.0),
    "exp": lambda xs, _: torch._foreach_exp(xs),
    "abs": lambda xs, _: torch._foreach_abs(xs),
    "neg": lambda xs, _: torch._foreach_neg(xs),
    "floor": lambda xs, _: torch._foreach_floor(xs),
    "ceil": lambda xs, _: torch._foreach_ceil(xs),
    "round": lambda xs, _: torch._foreach_round(xs),
    "trunc": lambda xs, _: torch._foreach_trunc(xs),
    "frac": lambda xs, _: torch._foreach_frac(xs),
    "sign": lambda xs, _: torch._foreach_sign(xs),
    "norm": lambda xs, _: torch._foreach_norm(xs),
    "lerp": lambda xs, ys: torch._foreach_lerp(xs, ys, 0.25),
    "addcmul": lambda xs, ys: torch._foreach_addcmul(xs, ys, ys, 0.5),
    "addcdiv": lambda xs, ys: torch._foreach_addcdiv(xs, ys, ys, [0.5, 2.0]),
    "addcmul with a tensor of numbers": lambda xs, ys: torch._foreach_addcmul(xs, ys, ys, torch.tensor([0.5, 2.0])),
}


@cases(FOREACH)
@few
@given(data=st.data())
def test_functions_of_lists(case, data):
    """A function of lists gives what the CPU gives for each tensor."""
    shape = st.just(data.draw(shapes_of_some))
    inputs = [data.draw(layouts((torch.float32,), shape)) for _ in range(4)]
    check(lambda a, b, c, d: list(case([a, b], [c, d])), *inputs, tolerance=CLOSE)


OPTIMIZERS = {
    "SGD": lambda ps: torch.optim.SGD(ps, lr=0.1, momentum=0.9),
    "Adam": lambda ps: torch.optim.Adam(ps, lr=0.1),
    "AdamW": lambda ps: torch.optim.AdamW(ps, lr=0.1, foreach=True),
}


@cases(OPTIMIZERS)
def test_optimizers(case):
    """A few steps of an optimizer move the parameters as on the CPU."""

    def story(device):
        parameters = [torch.arange(n, dtype=torch.float32, device=device).requires_grad_() for n in (2, 5)]
        optimizer = case(parameters)
        for _ in range(3):
            optimizer.zero_grad()
            sum((p * p).sum() for p in parameters).backward()
            optimizer.step()
        return [p.detach().cpu() for p in parameters]

    torch.testing.assert_close(story("npu"), story("cpu"))
