"""A CANN for machines without an NPU, on which the unmodified torch_npu runs.

``python -m npugraph_strategies.simulator -- COMMAND`` builds it where that has not been done, and runs a command on it.
It is an independent test double, made from no vendor's code. It says nothing about speed.
Importing this package loads neither torch nor torch_npu.
"""

from npugraph_strategies.simulator._build import build
from npugraph_strategies.simulator._config import SimulatorConfig
from npugraph_strategies.simulator._control import Control
from npugraph_strategies.simulator._launcher import command_environment

__all__ = ["Control", "SimulatorConfig", "build", "command_environment"]
