"""The simulated device and an NPU agree: the same program gives the same results and the same errors on both."""

from __future__ import annotations

import os

import pytest

from support.bench import SimulatedBench
from support.programs import World, program, shown

# What fails on the task queue's thread is the end of it: torch_npu then drops whatever is launched, without a word.
QUEUED = os.environ.get("TASK_QUEUE_ENABLE", "1") != "0"
LAUNCHES = {"op", "wait", "record", "join", "relaunch"}


def same(expected, outcome):
    """Tell whether two outcomes mean the same."""
    if expected == "refused":  # it would have to wait on the host, which a device says in one of many ways
        return outcome.startswith("DeviceError")
    # torch_npu compares streams before the driver is asked whether one is captured.
    return outcome == expected or {outcome, expected} == {"DeviceError 107036", "DeviceError 107029"}


def disagreement(bench, instructions):
    """Run a program on both devices in step; say where they first differ, or nothing."""
    simulated, real = worlds = World(SimulatedBench()), World(bench)
    try:
        for instruction in instructions:
            if simulated.broken and instruction[0] != "end":
                continue  # what else a broken capture answers is not documented
            expected = simulated.do(instruction)
            if QUEUED and expected != "ok" and instruction[0] in LAUNCHES:
                return ""
            outcome = real.do(instruction)
            if not same(expected, outcome):
                return f"{instruction}: simulated gives {expected}, {bench.device} {outcome}"
    finally:
        for world in worlds:
            world.close()
    return ""


def shortened(bench, instructions, found):
    """Leave out what a disagreement does not need."""
    place = 0
    while place < len(instructions):
        shorter = [*instructions[:place], *instructions[place + 1 :]]
        if disagreement(bench, shorter) == found:
            instructions = shorter
        else:
            place += 1
    return instructions


@pytest.mark.parametrize("seed", range(200))
def test_a_random_program_gives_the_same_on_both(bench, seed) -> None:
    """Operators, captures, joins, groups, updates, replays and misuse: same outcomes, same tensors."""
    instructions = program(seed)
    found = disagreement(bench, instructions)
    if found:
        pytest.fail(f"{found}\n{shown(shortened(bench, instructions, found))}", pytrace=False)
