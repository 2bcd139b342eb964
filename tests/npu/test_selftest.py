"""The self-test's probes on a device of torch_npu, in processes of their own."""

from __future__ import annotations

import pytest

from npugraph_strategies._selftest._catalogue import PROBES
from npugraph_strategies._selftest._results import DIFFERS
from npugraph_strategies._selftest._runner import run

HAZARDOUS = [one for one in PROBES if one.hazardous]


def differing(probes, **options):
    """Return what differs, and why, for a message that explains itself."""
    _, results = run("npu", probes=probes, **options)
    assert len(results) == len(probes)
    return [(one.probe, one.observed, one.reason) for one in results if one.verdict == DIFFERS]


def test_the_device_does_what_is_known():
    """Every rule that can be observed without hazard is observed."""
    assert differing([one for one in PROBES if not one.hazardous]) == []


@pytest.mark.parametrize("one", HAZARDOUS, ids=lambda one: one.name)
def test_hazardous_rules_hold_on_the_simulator(one, simulated_driver):  # noqa: ARG001 - skips on a real device
    """Waiting for ever and running out of everything end as is known."""
    assert differing([one], hazardous=True) == []


@pytest.fixture(scope="module")
def simulated_driver():
    """Go on only where nobody else can be harmed."""
    facts, _ = run("npu", probes=[])
    if facts["driver"] != "CANN simulator":
        pytest.skip("the device is real, and others may use it")
