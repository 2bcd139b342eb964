// Every code that the simulated driver returns: number, name, and, for the documentation, what it means. One table.
#pragma once

#include "abi.h"

namespace npusim {

#define NPUSIM_CODES(X)                                                                            \
  X(kSuccess, 0, "SUCCESS", "no error")                                                            \
  X(kParamInvalid, 107000, "PARAM_INVALID", "an argument is not valid")                            \
  X(kInvalidDevice, 107001, "INVALID_DEVICEID", "there is no such device")                         \
  X(kContextNull, 107002, "CONTEXT_NULL", "no device is set in this thread")                       \
  X(kStreamContext, 107003, "STREAM_CONTEXT", "the stream is not one of this device")              \
  X(kInvalidHandle, 107017, "INVALID_HANDLE", "the object was destroyed or never existed")         \
  X(kCaptureDependency, 107024, "CAPTURE_DEPENDENCY",                                              \
    "a capturing stream waits for an event that was not captured")                                 \
  X(kStreamUnjoined, 107025, "STREAM_UNJOINED", "a stream that joined the capture was not joined back") \
  X(kModelCaptured, 107026, "MODEL_CAPTURED", "a graph cannot be launched inside a capture")       \
  X(kStreamCaptured, 107027, "STREAM_CAPTURED", "the stream is being captured")                    \
  X(kEventCaptured, 107028, "EVENT_CAPTURED", "the event or the device is part of a capture")      \
  X(kStreamNotCaptured, 107029, "STREAM_NOT_CAPTURED", "the stream is not being captured")         \
  X(kCaptureMode, 107030, "CAPTURE_MODE_NOT_SUPPORT", "the capture's mode bars the call")          \
  X(kCaptureImplicit, 107031, "STREAM_CAPTURE_IMPLICIT", "the default stream cannot be captured")  \
  X(kCaptureConflict, 107032, "STREAM_CAPTURE_CONFLICT",                                           \
    "the event and the stream belong to different captures")                                       \
  X(kTaskGroupStatus, 107033, "STREAM_TASK_GROUP_STATUS", "task group calls are out of order")     \
  X(kTaskGroupInterrupted, 107034, "STREAM_TASK_GROUP_INTR",                                       \
    "a launch on another stream of the capture interrupts the open task group")                    \
  X(kCaptureUnmatched, 107036, "STREAM_CAPTURE_UNMATCHED", "the capture did not begin on this stream") \
  X(kModelRunning, 107037, "MODEL_RUNNING", "the graph is still running")                          \
  X(kCaptureWrongThread, 107038, "STREAM_CAPTURE_WRONG_THREAD", "the capture was begun by another thread") \
  X(kUpdateFailed, 107040, "MODEL_UPDATE_FAILED", "the replacement does not fit the task group")   \
  X(kOutOfMemory, 207001, "MEMORY_ALLOCATION", "the device's memory has run out")                  \
  X(kNotSupported, 207000, "FEATURE_NOT_SUPPORTED", "the simulator does not do this")              \
  X(kNoEvents, 207007, "NO_EVENT_RESOURCE", "events have run out")                                 \
  X(kNoStreams, 207008, "NO_STREAM_RESOURCE", "streams have run out")                              \
  X(kInternal, 507000, "INTERNAL_ERROR", "the simulator failed")                                   \
  X(kTaskType, 507009, "TASK_TYPE_NOT_SUPPORT", "a task group holds operators only")               \
  X(kKernelFailed, 507015, "AICORE_EXCEPTION", "an operator failed on the device")                 \
  X(kSyncTimeout, 507046, "STREAM_SYNC_TIMEOUT", "the stream waits for something that nobody signals") \
  X(kCaptureInvalidated, 507903, "STREAM_CAPTURE_INVALIDATED", "the capture was broken by an earlier call")

enum Code : aclError {
#define NPUSIM_CODE(NAME, NUMBER, TEXT, MEANING) NAME = NUMBER,
  NPUSIM_CODES(NPUSIM_CODE)
#undef NPUSIM_CODE
};

const char* code_name(aclError code);     // "STREAM_CAPTURED"; "" for a code outside the table

}  // namespace npusim
