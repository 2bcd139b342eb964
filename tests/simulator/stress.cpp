// Random calls to the simulated driver from several threads at once, for the compiler's sanitizers to watch.
//
// On device 0, threads make, use and destroy streams, events, graphs, task groups and memory that they share, in any
// order and at any time: every call has to return, with 0 or a code of the table. On device 1, others meanwhile run
// correct programs, whose results have to be right. At the end nothing may be left.
//
// `stress ROUNDS SEED` runs; `stress race`, `stress overflow` and `stress shift` commit what a sanitizer has to find.
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codes.h"

extern "C" {
aclError aclrtSetDevice(int32_t);
aclError aclrtCreateStream(aclrtStream*);
aclError aclrtDestroyStream(aclrtStream);
aclError aclrtDestroyStreamForce(aclrtStream);
aclError aclrtSynchronizeStream(aclrtStream);
aclError aclrtSynchronizeStreamWithTimeout(aclrtStream, int32_t);
aclError aclrtSynchronizeDevice();
aclError aclrtSynchronizeEvent(aclrtEvent);
aclError aclrtStreamQuery(aclrtStream, int32_t*);
aclError aclrtPeekAtLastError(int32_t);
const char* aclGetRecentErrMsg();
aclError aclrtCreateEventWithFlag(aclrtEvent*, uint32_t);
aclError aclrtDestroyEvent(aclrtEvent);
aclError aclrtRecordEvent(aclrtEvent, aclrtStream);
aclError aclrtResetEvent(aclrtEvent, aclrtStream);
aclError aclrtStreamWaitEvent(aclrtStream, aclrtEvent);
aclError aclrtQueryEventStatus(aclrtEvent, int32_t*);
aclError aclrtEventElapsedTime(float*, aclrtEvent, aclrtEvent);
aclError aclrtValueWait(void*, uint64_t, uint32_t, aclrtStream);
aclError aclrtValueWrite(void*, uint64_t, uint32_t, aclrtStream);
aclError aclrtMalloc(void**, size_t, int32_t);
aclError aclrtFree(void*);
aclError aclrtMallocHost(void**, size_t);
aclError aclrtFreeHost(void*);
aclError aclrtMemcpy(void*, size_t, const void*, size_t, int32_t);
aclError aclrtMemcpyAsync(void*, size_t, const void*, size_t, int32_t, aclrtStream);
aclError aclrtMemsetAsync(void*, size_t, int32_t, size_t, aclrtStream);
aclError aclrtLaunchHostFunc(aclrtStream, void (*)(void*), void*);
aclError aclrtSubscribeReport(uint64_t, aclrtStream);
aclError aclrtLaunchCallback(void (*)(void*), void*, int32_t, aclrtStream);
aclError aclrtProcessReport(int32_t);
aclError aclmdlRICaptureBegin(aclrtStream, int32_t);
aclError aclmdlRICaptureEnd(aclrtStream, aclmdlRI*);
aclError aclmdlRICaptureGetInfo(aclrtStream, int32_t*, aclmdlRI*);
aclError aclmdlRICaptureThreadExchangeMode(int32_t*);
aclError aclmdlRICaptureTaskGrpBegin(aclrtStream);
aclError aclmdlRICaptureTaskGrpEnd(aclrtStream, aclrtTaskGrp*);
aclError aclmdlRICaptureTaskUpdateBegin(aclrtStream, aclrtTaskGrp);
aclError aclmdlRICaptureTaskUpdateEnd(aclrtStream);
aclError aclmdlRIExecuteAsync(aclmdlRI, aclrtStream);
aclError aclmdlRIDestroy(aclmdlRI);
aclError aclmdlRIDebugJsonPrint(aclmdlRI, const char*, uint32_t);
aclError npusim_launch_add(const char*, aclrtStream, double*, uint64_t, double);
void npusim_seed(int64_t);
void npusim_stall_seconds(double);
void npusim_limits(int32_t, int32_t);
void npusim_trace_keep(int32_t);
uint64_t npusim_trace_order(char*, uint64_t);
uint64_t npusim_count(const char*, int32_t);
void npusim_reset();
}

namespace {

enum CopyKind { kToDevice = 1, kToHost = 2, kOnDevice = 3 };
constexpr uint32_t kExternal = 0x20;
constexpr size_t kBytes = 64;

[[noreturn]] void die(const std::string& text) {
  std::fprintf(stderr, "stress: %s\n", text.c_str());
  std::_Exit(3);
}

void must(aclError code, const char* what) {
  if (code) die(std::string(what) + " returned " + aclGetRecentErrMsg());
}
#define MUST(CALL) must(CALL, #CALL)

bool known(aclError code) {
  switch (code) {
#define NPUSIM_CODE(NAME, NUMBER, TEXT, MEANING) case NUMBER: return NUMBER != npusim::kInternal;
    NPUSIM_CODES(NPUSIM_CODE)
#undef NPUSIM_CODE
    default: return false;
  }
}

// Handles that all threads share. One that was taken out may still be in use elsewhere: that is the point.
class Pool {
 public:
  void add(void* one) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (one) all_.push_back(one);
  }
  void* any(std::mt19937& random) {
    const std::lock_guard<std::mutex> lock(mutex_);
    return all_.empty() ? nullptr : all_[random() % all_.size()];
  }
  void* take(std::mt19937& random) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (all_.size() < 3) return nullptr;
    std::swap(all_[random() % all_.size()], all_.back());
    void* one = all_.back();
    all_.pop_back();
    return one;
  }
  std::vector<void*> empty() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(all_, {});
  }

 private:
  std::mutex mutex_;
  std::vector<void*> all_;
};

Pool streams, events, graphs, groups, blocks, pinned;
std::atomic<uint64_t> host_calls{0};

void count_call(void*) { ++host_calls; }

// A graph with a task group, made as it should be, for the others to misuse.
aclError make_graph(void* block) {
  aclrtStream stream = nullptr;
  aclmdlRI graph = nullptr;
  aclrtTaskGrp group = nullptr;
  if (const aclError code = aclrtCreateStream(&stream)) return code;
  streams.add(stream);
  aclmdlRICaptureBegin(stream, 2);
  npusim_launch_add("add", stream, static_cast<double*>(block), 1, 1);
  aclmdlRICaptureTaskGrpBegin(stream);
  npusim_launch_add("add", stream, static_cast<double*>(block), 1, 1);
  aclmdlRICaptureTaskGrpEnd(stream, &group);
  groups.add(group);
  const aclError code = aclmdlRICaptureEnd(stream, &graph);
  graphs.add(graph);
  return code;
}

// One random call. The handles may be dead, of a broken capture, or in use by another thread.
aclError call(std::mt19937& random) {
  void* const stream = streams.any(random);
  void* const event = events.any(random);
  void* const block = blocks.any(random);
  void* out = nullptr;
  int32_t status = 0;
  aclError code = 0;
  switch (random() % 44) {
    case 0: code = aclrtCreateStream(&out); streams.add(out); return code;
    case 1: out = streams.take(random); return out ? aclrtDestroyStream(out) : 0;
    case 2: out = streams.take(random); return out ? aclrtDestroyStreamForce(out) : 0;
    case 3: code = aclrtCreateEventWithFlag(&out, random() % 2 ? kExternal : 0); events.add(out); return code;
    case 4: out = events.take(random); return out ? aclrtDestroyEvent(out) : 0;
    case 5: code = aclrtMalloc(&out, kBytes, 0); blocks.add(out); return code;
    case 6: out = blocks.take(random); return out ? aclrtFree(out) : 0;
    case 7: code = aclrtMallocHost(&out, kBytes); pinned.add(out); return code;
    case 8: out = pinned.take(random); return out ? aclrtFreeHost(out) : 0;
    case 9: return aclrtSynchronizeStream(stream);
    case 10: return aclrtSynchronizeStreamWithTimeout(stream, 1);
    case 11: return random() % 8 ? 0 : aclrtSynchronizeDevice();
    case 12: return aclrtSynchronizeEvent(event);
    case 13: return aclrtStreamQuery(stream, &status);
    case 14: return aclrtQueryEventStatus(event, &status);
    case 15: return aclrtRecordEvent(event, stream);
    case 16: return aclrtRecordEvent(event, stream);
    case 17: return random() % 2 ? aclrtStreamWaitEvent(stream, event) : 0;
    case 18: return aclrtResetEvent(event, stream);
    case 19: return random() % 8 ? 0 : aclrtValueWait(block, random() % 2, 0, stream);
    case 20: return aclrtValueWrite(block, random() % 3, 0, stream);
    case 21: return aclrtMemcpyAsync(block, kBytes, blocks.any(random), kBytes, kOnDevice, stream);
    case 22: return aclrtMemcpyAsync(block, kBytes, pinned.any(random), kBytes, kToDevice, stream);
    case 23: return aclrtMemsetAsync(block, kBytes, 0, random() % 2 ? kBytes : 2 * kBytes, stream);
    case 24: return aclrtLaunchHostFunc(stream, count_call, nullptr);
    case 25: return aclmdlRICaptureBegin(stream, static_cast<int32_t>(random() % 4));
    case 26: case 27: code = aclmdlRICaptureEnd(stream, &out); graphs.add(out); return code;
    case 28: return aclmdlRICaptureGetInfo(stream, &status, &out);
    case 29: return aclmdlRICaptureTaskGrpBegin(stream);
    case 30: code = aclmdlRICaptureTaskGrpEnd(stream, &out); groups.add(out); return code;
    case 31: return aclmdlRICaptureTaskUpdateBegin(stream, groups.any(random));
    case 32: return aclmdlRICaptureTaskUpdateEnd(stream);
    case 33: return aclmdlRIExecuteAsync(graphs.any(random), stream);
    case 34: out = graphs.take(random); return out ? aclmdlRIDestroy(out) : 0;
    case 35: return aclmdlRIDebugJsonPrint(graphs.any(random), "/dev/null", 0);
    case 36: aclrtPeekAtLastError(0); return 0;
    case 37: return make_graph(block);
    default: return npusim_launch_add("add", stream, static_cast<double*>(block), kBytes / sizeof(double), 1);
  }
}

void chaos(uint32_t seed, int calls) {
  std::mt19937 random(seed);
  MUST(aclrtSetDevice(0));
  for (int i = 0; i < calls; ++i) {
    const aclError code = call(random);
    if (!known(code)) die("a call returned the unknown code " + std::to_string(code));
    if (code && !std::strlen(aclGetRecentErrMsg()) && code != npusim::kOutOfMemory)
      die("the code " + std::to_string(code) + " came without a diagnosis");
  }
}

double read(const double* number) {
  double value = 0;
  MUST(aclrtMemcpy(&value, sizeof value, number, sizeof value, kToHost));
  return value;
}

template <typename T>
T* zeros(size_t count) {
  void* out = nullptr;
  const std::vector<T> content(count);
  MUST(aclrtMalloc(&out, count * sizeof(T), 0));
  MUST(aclrtMemcpy(out, count * sizeof(T), content.data(), count * sizeof(T), kToDevice));
  return static_cast<T*>(out);
}

// A graph that is updated before or after each of its replays, and behind an event; every replay has its own value.
void updates(uint32_t seed, int steps) {
  std::mt19937 random(seed);
  MUST(aclrtSetDevice(1));
  int32_t relaxed = 2;
  MUST(aclmdlRICaptureThreadExchangeMode(&relaxed));  // what the others capture must not bar copies of this thread
  aclrtStream stream, updater;
  aclrtEvent done;
  aclmdlRI graph;
  aclrtTaskGrp group;
  MUST(aclrtCreateStream(&stream));
  MUST(aclrtCreateStream(&updater));
  MUST(aclrtCreateEventWithFlag(&done, 0));
  auto* flag = zeros<uint64_t>(4);
  auto* x = zeros<double>(1);
  MUST(aclmdlRICaptureBegin(stream, 2));
  MUST(aclrtValueWait(flag, 1, 1, stream));
  MUST(aclrtValueWrite(flag, 0, 0, stream));
  MUST(aclmdlRICaptureTaskGrpBegin(stream));
  MUST(npusim_launch_add("add", stream, x, 1, 0));
  MUST(aclmdlRICaptureTaskGrpEnd(stream, &group));
  MUST(aclmdlRICaptureEnd(stream, &graph));
  double expected = 0;
  for (int step = 1; step <= steps; ++step) {
    const bool replay_first = random() % 2;
    if (replay_first) MUST(aclmdlRIExecuteAsync(graph, stream));
    if (step > 1) MUST(aclrtStreamWaitEvent(updater, done));
    MUST(aclmdlRICaptureTaskUpdateBegin(updater, group));
    MUST(npusim_launch_add("add", updater, x, 1, step));
    MUST(aclmdlRICaptureTaskUpdateEnd(updater));
    MUST(aclrtValueWrite(flag, 1, 0, updater));
    if (!replay_first) MUST(aclmdlRIExecuteAsync(graph, stream));
    MUST(aclrtRecordEvent(done, stream));
    expected += step;
    if (random() % 4) continue;
    MUST(aclrtSynchronizeStream(stream));
    if (read(x) != expected) die("a replay saw another one's update");
  }
  MUST(aclrtDestroyStream(stream));
  if (read(x) != expected) die("a replay saw another one's update");
  MUST(aclrtDestroyStream(updater));
  MUST(aclrtDestroyEvent(done));
  MUST(aclmdlRIDestroy(graph));
  MUST(aclrtFree(flag));
  MUST(aclrtFree(x));
}

// Two streams that pass a number to and fro by events; host functions and callbacks, which another thread runs.
void events_and_calls(int steps) {
  MUST(aclrtSetDevice(1));
  int32_t relaxed = 2;
  MUST(aclmdlRICaptureThreadExchangeMode(&relaxed));
  aclrtStream sides[2];
  aclrtEvent event;
  MUST(aclrtCreateEventWithFlag(&event, 0));
  for (aclrtStream& side : sides) MUST(aclrtCreateStream(&side));
  std::atomic<bool> stop{false};
  std::thread reporter([&stop] {
    while (!stop) aclrtProcessReport(1);
  });
  MUST(aclrtSubscribeReport(static_cast<uint64_t>(reporter.native_handle()), sides[1]));
  auto* x = zeros<double>(1);
  int called = 0;  // one function at a time: the events order them
  const auto increment = [](void* place) { ++*static_cast<int*>(place); };
  for (int step = 0; step < steps; ++step) {
    const aclrtStream side = sides[step % 2];
    MUST(npusim_launch_add("add", side, x, 1, 1));
    if (step % 2)
      MUST(aclrtLaunchCallback(increment, &called, 1, side));
    else
      MUST(aclrtLaunchHostFunc(side, increment, &called));
    MUST(aclrtRecordEvent(event, side));
    MUST(aclrtStreamWaitEvent(sides[(step + 1) % 2], event));
  }
  for (const aclrtStream side : sides) {
    aclError code;  // to the driver, callbacks that the other thread is late with look like a stall
    while ((code = aclrtSynchronizeStream(side)) == npusim::kSyncTimeout) std::this_thread::yield();
    must(code, "synchronising with one of two sides");
  }
  if (read(x) != steps || called != steps) die("work or calls were lost");
  stop = true;
  reporter.join();
  for (const aclrtStream side : sides) MUST(aclrtDestroyStream(side));
  MUST(aclrtDestroyEvent(event));
  MUST(aclrtFree(x));
}

void run_round(uint32_t seed) {
  std::mt19937 random(seed);
  npusim_seed(random() % 2 ? static_cast<int64_t>(random() % 1000) : -1);
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) threads.emplace_back(chaos, random(), 300);
  threads.emplace_back(updates, random(), 20);
  threads.emplace_back(events_and_calls, 20);
  for (std::thread& thread : threads) thread.join();
  npusim_trace_order(nullptr, 0);
  npusim_reset();
  for (Pool* pool : {&streams, &events, &graphs, &groups}) pool->empty();
  for (void* block : blocks.empty()) MUST(aclrtFree(block));
  for (void* block : pinned.empty()) MUST(aclrtFreeHost(block));
  for (int32_t device : {0, 1})
    for (const char* what : {"graphs", "streams", "events", "memory"})
      if (npusim_count(what, device)) die(std::string(what) + " are left");
}

// What the sanitizers have to find, to show that they watch.
int misbehave(const std::string& how) {
  if (how == "race") {
    int shared = 0;
    std::thread other([&shared] { ++shared; });
    ++shared;
    other.join();
    return shared ? 0 : 1;
  }
  volatile int index = 40, seen = 0;
  if (how == "overflow") seen = std::vector<int>(index).data()[index];
  else if (how == "shift") seen = 1 << index;
  else die("cannot " + how);
  return seen * 0;
}

}  // namespace

int main(int count, char** arguments) {
  alarm(300);  // a hang is a failure too
  if (count == 2) return misbehave(arguments[1]);
  if (count != 3) die("how many rounds, and which seed?");
  npusim_stall_seconds(0.002);
  npusim_limits(100, 200);
  npusim_trace_keep(1);
  for (int round = 0; round < std::atoi(arguments[1]); ++round)
    run_round(static_cast<uint32_t>(std::atoi(arguments[2]) + round));
  // The process ends with work that is queued, stalled and running.
  MUST(aclrtSetDevice(0));
  auto* x = zeros<double>(1);
  aclrtEvent never;
  MUST(aclrtCreateEventWithFlag(&never, 0));
  for (int i = 0; i < 100; ++i) MUST(npusim_launch_add("add", nullptr, x, 1, 1));
  MUST(aclrtStreamWaitEvent(nullptr, never));
  std::puts("done");
  return 0;
}
