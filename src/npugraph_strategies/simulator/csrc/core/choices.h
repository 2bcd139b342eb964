// What is not documented about the driver, and what the simulated one does instead: one table.
#pragma once

#include <cstdint>

#include "codes.h"

namespace npusim::choices {

// Synchronising with a capturing stream; the capture is invalidated.
constexpr Code kSynchronizeCapturedStream = kStreamCaptured;
// Synchronising with a device on which any capture is going on; every such capture is invalidated.
constexpr Code kSynchronizeCapturedDevice = kEventCaptured;
// Synchronising with, or querying, an event that was recorded inside a capture; the capture is invalidated.
constexpr Code kSynchronizeCapturedEvent = kEventCaptured;
// The end of an update whose operators differ from the group's in name or number. Nothing is patched.
constexpr Code kUpdateMismatch = kUpdateFailed;
// An update that launches nothing is accepted, and changes nothing.
constexpr bool kEmptyUpdateAccepted = true;
// A launch into a capture that is already broken.
constexpr Code kLaunchIntoBroken = kCaptureInvalidated;
// Outside a capture: waiting for an ordinary event that was recorded inside one.
constexpr Code kForeignEvent = kCaptureDependency;
// A task that fails is skipped, its stream goes on, and the code is returned once, by the next synchronisation.
constexpr bool kFailureReportedOnce = true;
// A synchronous copy is not ordered with any stream: it happens at once, as seen from the host.
constexpr bool kSynchronousCopyIgnoresStreams = true;
// An asynchronous copy out of pageable memory takes its source at the call; one into pageable memory blocks the
// caller until it has happened.
constexpr bool kPageableIsStaged = true;
// Bytes that fresh device memory is filled with: a NaN in every floating-point type.
constexpr unsigned char kPoison = 0xFF;
// A seeded device makes at most this many steps at each call that puts work on a stream.
constexpr int kMostSteps = 4;

}  // namespace npusim::choices
