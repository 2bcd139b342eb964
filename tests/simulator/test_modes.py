"""What a capture's mode bars, in which thread."""

from __future__ import annotations

import ctypes

import pytest

from simulator.driver import MODES, TO_DEVICE, TO_HOST, elsewhere, refused

MEMORY = ctypes.create_string_buffer(8)
PAGEABLE = ctypes.addressof(MEMORY)


def copy(driver, number):
    driver.copy(number, PAGEABLE, 8, TO_DEVICE)


def fill(driver, number):
    driver.fill(number, 0, 8)


def from_pageable(driver, number):
    driver.copy_async(number, PAGEABLE, 8, TO_DEVICE)


def to_pageable(driver, number):
    driver.copy_async(PAGEABLE, number, 8, TO_HOST)


UNSAFE = [copy, fill, from_pageable, to_pageable]


@pytest.mark.parametrize("call", UNSAFE)
@pytest.mark.parametrize("same_thread", [True, False], ids=["same thread", "other thread"])
@pytest.mark.parametrize("mode", MODES)
def test_unsafe_calls(driver, mode, same_thread, call):
    """Global bars every thread, thread_local the capturing one, relaxed none; a violation breaks the capture."""
    stream, number = driver.stream(), driver.number()
    driver.capture_begin(stream, mode)

    def run():
        driver.set_device(0)
        call(driver, number)

    barred = mode == "global" or (mode == "thread_local" and same_thread)
    if not barred:
        run() if same_thread else elsewhere(run)
        driver.capture_end(stream)
        return
    with refused(107030, mode):
        run() if same_thread else elsewhere(run)
    with refused(507903):
        driver.capture_end(stream)


@pytest.mark.parametrize("call", UNSAFE)
def test_a_relaxed_thread_is_not_barred(driver, call):
    """A thread can exchange its own mode, as allocators do."""
    stream, number = driver.stream(), driver.number()
    with driver.capturing(stream, "global"):
        assert driver.exchange_mode("relaxed") == "global"
        call(driver, number)
        assert driver.exchange_mode("global") == "relaxed"


def test_a_thread_local_thread_ignores_the_captures_of_others(driver):
    """A global capture bars threads of mode global only."""
    stream, number = driver.stream(), driver.number()

    def run():
        driver.exchange_mode("thread_local")
        copy(driver, number)

    with driver.capturing(stream, "global"):
        elsewhere(run)


@pytest.mark.parametrize("direction", [TO_DEVICE, TO_HOST])
@pytest.mark.parametrize("mode", MODES)
def test_copies_with_pinned_memory_are_captured(driver, mode, direction):
    """They are asynchronous in truth, so that every mode allows them."""
    stream, number, pinned = driver.stream(), driver.number(), driver.pinned(8)
    with driver.capturing(stream, mode):
        driver.copy_async(*((number, pinned) if direction == TO_DEVICE else (pinned, number)), 8, direction, stream)
    driver.free_pinned(pinned)


def test_allocation_is_allowed(driver):
    """Memory may be taken and given back during a capture of any mode."""
    stream = driver.stream()
    with driver.capturing(stream, "global"):
        driver.free(driver.allocate(8))
