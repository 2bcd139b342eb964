// Diagnoses: each misuse is told on stderr once, and kept as the text of aclGetRecentErrMsg.
#pragma once

#include <string>

#include "codes.h"
#include "launch.h"

namespace npusim {

// Tell something on stderr without an error code (a stall's report, a warning).
void tell(const std::string& text);

// Misuses reported so far in this process.
uint64_t reports();

}  // namespace npusim
