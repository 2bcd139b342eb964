// The way of a kernel library's work onto a stream.
#include "launch.h"
#include "report.h"
#include "scheduler.h"

namespace npusim {

aclError submit(aclrtStream handle, Work work) {
  Scheduler::Lock lock(scheduler().mutex);
  const StreamPtr stream = find_stream(handle);
  if (!stream) return fail(kInvalidHandle, work.name + " is launched on a stream that does not exist");
  TaskPtr task = make_task(Kind::kKernel, std::move(work.name), std::move(work.extents));
  task->run = std::move(work.run);
  return put(lock, *stream, std::move(task));
}

}  // namespace npusim
