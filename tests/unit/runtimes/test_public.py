from __future__ import annotations

import os
import subprocess
import sys

import pytest

from npugraph_strategies import runtimes
from npugraph_strategies.runtimes import FaultyRuntime, InjectedFault, RecordingRuntime, SimulatedRuntime


def test_all_is_sorted_and_real():
    """Every public name exists, and they stand in order."""
    assert runtimes.__all__ == sorted(runtimes.__all__)
    assert all(getattr(runtimes, name).__name__ == name for name in runtimes.__all__)


def test_importing_the_runtimes_loads_no_torch_npu():
    """The import leaves torch_npu and hypothesis alone."""
    code = "import sys, npugraph_strategies.runtimes; assert not {'torch_npu', 'hypothesis'} & set(sys.modules)"
    # torch's own automatic loading of backends is off: it is not ours.
    subprocess.run(  # noqa: S603 - the command is fixed
        [sys.executable, "-c", code], check=True, env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
    )


def test_the_products_work_on_a_simulated_device():
    """A recorder over a faulty runtime over a simulated device sees primitives, fault and clean-up."""
    runtime = RecordingRuntime(FaultyRuntime(SimulatedRuntime(), fail_at=1, names=["new_event"]))
    runtime.new_event("first")
    with pytest.raises(InjectedFault):
        runtime.new_event("second")
    runtime.new_event("third").record(runtime.update_stream())
    runtime.synchronize()
    assert runtime.names() == ("new_event", "new_event", "new_event", "event.record", "synchronize")
    assert [primitive.error is None for primitive in runtime.primitives] == [True, False, True, True, True]
