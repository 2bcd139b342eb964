// Device memory is host memory whose extent and life are known; pinned host memory is remembered as such.
#pragma once

#include <cstdint>
#include <mutex>
#include <map>
#include <string>
#include <vector>

#include "codes.h"

namespace npusim {

struct Block {
  uint64_t bytes = 0;
  uint64_t serial = 0;  // tells an allocation from a later one at the same address
  int device = 0;
};

class Memory {
 public:
  // Allocate on `device`; the content is poison. Returns kOutOfMemory when the device is full.
  Code allocate(int device, uint64_t bytes, void** out);
  Code release(void* base);  // kParamInvalid for what is not the base of a live block
  uint64_t used(int device) const;

  // The serial of the live block that holds the range, or 0: of the device, or also of pinned memory.
  uint64_t holder(const void* address, uint64_t bytes) const;
  uint64_t serial(const void* address, uint64_t bytes) const;
  bool was_freed(const void* address) const;  // it lies in a block that was freed, and is remembered
  // Where `address` lies, in words: "12 bytes past the end of a block of 512", "in a block that was freed".
  std::string whereabouts(const void* address) const;

  void* allocate_host(uint64_t bytes);
  bool release_host(void* base);
  void pin(void* base, uint64_t bytes);
  bool unpin(void* base);
  bool pinned(const void* address) const;
  int device_of(const void* address) const;  // -1 when it is no device memory

 private:
  uint64_t find(const void* address, uint64_t bytes, bool host_too) const;
  void retire(std::map<uintptr_t, Block>& blocks, std::map<uintptr_t, Block>::iterator block);

  mutable std::mutex mutex_;
  std::map<uintptr_t, Block> live_;
  std::map<uintptr_t, Block> freed_;  // the last few, for diagnoses only
  std::map<uintptr_t, uint64_t> pinned_;  // memory of the caller's that is registered
  std::map<uintptr_t, Block> host_;       // pinned memory that was allocated here
  std::vector<uint64_t> used_;
  uint64_t next_serial_ = 1;
};

Memory& memory();

}  // namespace npusim
