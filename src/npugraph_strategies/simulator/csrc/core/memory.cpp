#include "memory.h"

#include <sys/mman.h>

#include <atomic>
#include <cstring>

#include "choices.h"
#include "config.h"
#include "launch.h"

namespace npusim {
namespace {

constexpr uint64_t kPage = 4096;
constexpr size_t kRemembered = 4096;  // freed blocks kept for diagnoses

uintptr_t number(const void* address) { return reinterpret_cast<uintptr_t>(address); }
uint64_t rounded(uint64_t bytes) { return (bytes + kPage - 1) / kPage * kPage; }

// The entry of `blocks` whose range [base, base + bytes) holds `address`, or end.
template <typename Map, typename Size>
auto holding(const Map& blocks, uintptr_t address, Size size) {
  auto found = blocks.upper_bound(address);
  if (found == blocks.begin()) return blocks.end();
  --found;
  return address - found->first < size(found->second) ? found : blocks.end();
}

const auto block_bytes = [](const Block& block) { return block.bytes; };
const auto itself = [](uint64_t bytes) { return bytes; };

// Fresh pages, or null. They are whole pages, so that the addresses can stay reserved when the content goes.
void* pages(uint64_t bytes) {
  void* base = mmap(nullptr, rounded(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return base == MAP_FAILED ? nullptr : base;
}

}  // namespace

Code Memory::allocate(int device, uint64_t bytes, void** out) {
  if (bytes == 0) bytes = 1;
  std::lock_guard<std::mutex> lock(mutex_);
  used_.resize(config().devices);
  if (bytes > config().memory - used_[device]) return kOutOfMemory;
  void* base = pages(bytes);
  if (!base) return kOutOfMemory;
  std::memset(base, choices::kPoison, bytes);
  used_[device] += bytes;
  live_[number(base)] = Block{bytes, next_serial_++, device};
  *out = base;
  return kSuccess;
}

Code Memory::release(void* base) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = live_.find(number(base));
  if (found == live_.end()) return kParamInvalid;
  used_[found->second.device] -= found->second.bytes;
  retire(live_, found);
  return kSuccess;
}

void Memory::retire(std::map<uintptr_t, Block>& blocks, std::map<uintptr_t, Block>::iterator block) {
  if (freed_.size() >= kRemembered) freed_.erase(freed_.begin());
  freed_[block->first] = block->second;
  // The pages go, the addresses stay reserved: they never come back as another block, and a kernel that runs over
  // them right now reads zeros instead of crashing the process.
  madvise(reinterpret_cast<void*>(block->first), rounded(block->second.bytes), MADV_DONTNEED);
  blocks.erase(block);
}

uint64_t Memory::used(int device) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return static_cast<size_t>(device) < used_.size() ? used_[device] : 0;
}

uint64_t Memory::find(const void* address, uint64_t bytes, bool host_too) const {
  std::lock_guard<std::mutex> lock(mutex_);
  for (const auto* blocks : {&live_, &host_}) {
    if (blocks == &host_ && !host_too) break;
    const auto found = holding(*blocks, number(address), block_bytes);
    if (found == blocks->end()) continue;
    return bytes <= found->first + found->second.bytes - number(address) ? found->second.serial : 0;
  }
  return 0;
}

uint64_t Memory::holder(const void* address, uint64_t bytes) const { return find(address, bytes, false); }
uint64_t Memory::serial(const void* address, uint64_t bytes) const { return find(address, bytes, true); }

bool Memory::was_freed(const void* address) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return holding(freed_, number(address), block_bytes) != freed_.end();
}

std::string Memory::whereabouts(const void* address) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const uintptr_t at = number(address);
  const auto inside = holding(live_, at, block_bytes);
  if (inside != live_.end())
    return "it begins " + std::to_string(at - inside->first) + " bytes into a block of " +
           std::to_string(inside->second.bytes) + " bytes of device " + std::to_string(inside->second.device);
  if (holding(freed_, at, block_bytes) != freed_.end()) return "its block was freed";
  if (!address) return "the address is null";
  if (holding(host_, at, block_bytes) != host_.end() || holding(pinned_, at, itself) != pinned_.end())
    return "it is host memory";
  return "it is in no block of any device";
}

int Memory::device_of(const void* address) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = holding(live_, number(address), block_bytes);
  return found == live_.end() ? -1 : found->second.device;
}

void* Memory::allocate_host(uint64_t bytes) {
  if (bytes == 0) bytes = 1;
  std::lock_guard<std::mutex> lock(mutex_);
  void* base = pages(bytes);
  if (base) host_[number(base)] = Block{bytes, next_serial_++, -1};
  return base;
}

bool Memory::release_host(void* base) {
  std::lock_guard<std::mutex> lock(mutex_);
  const auto found = host_.find(number(base));
  if (found == host_.end()) return false;
  retire(host_, found);
  return true;
}

void Memory::pin(void* base, uint64_t bytes) {
  std::lock_guard<std::mutex> lock(mutex_);
  pinned_[number(base)] = bytes;
}

bool Memory::unpin(void* base) {
  std::lock_guard<std::mutex> lock(mutex_);
  return pinned_.erase(number(base)) > 0;
}

bool Memory::pinned(const void* address) const {
  std::lock_guard<std::mutex> lock(mutex_);
  return holding(pinned_, number(address), itself) != pinned_.end() ||
         holding(host_, number(address), block_bytes) != host_.end();
}

Memory& memory() {
  static Memory* instance = new Memory;  // never destroyed: threads may still run at exit
  return *instance;
}

void* new_handle() {
  static std::atomic<uintptr_t> last{0};
  return reinterpret_cast<void*>(last += 16);
}

bool null_kernels() { return config().null_kernels; }

bool is_device_memory(const void* address, uint64_t bytes) { return memory().holder(address, bytes) != 0; }

size_t element_bytes(aclDataType type) {
  switch (type) {
    case ACL_INT8: case ACL_UINT8: case ACL_BOOL: return 1;
    case ACL_FLOAT16: case ACL_BF16: case ACL_INT16: case ACL_UINT16: return 2;
    case ACL_FLOAT: case ACL_INT32: case ACL_UINT32: case ACL_COMPLEX32: return 4;
    case ACL_DOUBLE: case ACL_INT64: case ACL_UINT64: case ACL_COMPLEX64: return 8;
    case ACL_COMPLEX128: return 16;
    default: return 0;
  }
}

}  // namespace npusim
