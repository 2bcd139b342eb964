#include "report.h"

#include <atomic>
#include <cstdio>

namespace npusim {
namespace {

std::atomic<uint64_t> count{0};
thread_local std::string recent;     // the last diagnosis of this thread, not yet taken
thread_local std::string delivered;  // keeps the text that aclGetRecentErrMsg handed out alive

}  // namespace

const char* code_name(aclError code) {
  switch (code) {
#define NPUSIM_CODE(NAME, NUMBER, TEXT, MEANING) \
  case NUMBER:                                   \
    return TEXT;
    NPUSIM_CODES(NPUSIM_CODE)
#undef NPUSIM_CODE
    default: return "";
  }
}

void tell(const std::string& text) {
  std::fprintf(stderr, "[npu simulator] %s\n", text.c_str());
  std::fflush(stderr);
}

aclError fail(aclError code, const std::string& message) {
  count.fetch_add(1, std::memory_order_relaxed);
  repeat(code, message);
  tell(recent);
  return code;
}

aclError repeat(aclError code, const std::string& message) {
  const char* name = code_name(code);
  recent = std::to_string(code) + (*name ? std::string(" ") + name : "") + ": " + message;
  return code;
}

uint64_t reports() { return count.load(std::memory_order_relaxed); }

}  // namespace npusim

NPUSIM_EXPORT const char* aclGetRecentErrMsg() {
  npusim::delivered = std::move(npusim::recent);
  npusim::recent.clear();
  return npusim::delivered.c_str();
}
