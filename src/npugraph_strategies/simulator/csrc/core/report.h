// Diagnoses: each misuse is told on stderr once, and kept as the text of aclGetRecentErrMsg.
#pragma once

#include <string>
#include <utility>

#include "codes.h"
#include "launch.h"

namespace npusim {

// Tell something on stderr without an error code (a stall's report, a warning).
void tell(const std::string& text);

// Give this thread a diagnosis that was told when it happened, on another thread; returns `code`.
aclError repeat(aclError code, const std::string& message);

// Hand a value out through the caller's pointer, which may be null by mistake.
template <typename T>
aclError give(T* out, T value) {
  if (!out) return fail(kParamInvalid, "no place for what is asked for");
  *out = std::move(value);
  return kSuccess;
}

// Misuses reported so far in this process.
uint64_t reports();

}  // namespace npusim
