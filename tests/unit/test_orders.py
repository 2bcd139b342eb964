"""Orders: each calls both halves once."""

from __future__ import annotations

import pickle

import pytest

from npugraph_strategies import ReplayThenUpdate, UpdateThenReplay


@pytest.mark.parametrize(
    ("order", "expected"), [(UpdateThenReplay(), ["update", "replay"]), (ReplayThenUpdate(), ["replay", "update"])]
)
def test_each_half_runs_once(order, expected):
    """An order calls update and replay once each, in its own order."""
    done = []
    order.run(update=lambda: done.append("update"), replay=lambda: done.append("replay"))
    assert done == expected


@pytest.mark.parametrize("order", [UpdateThenReplay(), ReplayThenUpdate()])
def test_a_failure_ends_the_step(order):
    """When the first half raises, the second does not run and the error goes through."""
    done = []

    def fail(name):
        done.append(name)
        raise ValueError(name)

    with pytest.raises(ValueError, match=r"update|replay"):
        order.run(update=lambda: fail("update"), replay=lambda: fail("replay"))
    assert len(done) == 1


@pytest.mark.parametrize("order", [UpdateThenReplay, ReplayThenUpdate])
def test_orders_are_values(order):
    """Orders are equal, hash alike and survive pickling."""
    assert order() == order() == pickle.loads(pickle.dumps(order()))  # noqa: S301 - our own bytes
    assert len({order(), order()}) == 1
    assert UpdateThenReplay() != ReplayThenUpdate()
