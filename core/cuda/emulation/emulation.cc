#include "core/cuda/emulation/emulation.h"

#include <boost/context/fiber.hpp>
#include <boost/context/preallocated.hpp>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "core/cuda/emulation/fiber_annotations.h"
#include "core/cuda/emulation/race_check.h"

namespace attention::cuda::emulation {
namespace {

namespace context = boost::context;

constexpr int kWarp = 32;
// Sanitizers widen stack frames.
constexpr size_t kStackBytes = size_t{256} * 1024;
constexpr std::align_val_t kSharedAlignment{128};

// Where threads meet: everyone may go on once all who still run have come.
struct Barrier {
  int running = 0;
  int arrived = 0;
  uint64_t generation = 0;

  bool IsComplete() const { return arrived > 0 && arrived == running; }
  void Release() {
    arrived = 0;
    ++generation;
  }
};

struct Warp {
  Barrier barrier;
  alignas(16) std::byte exchange[2][kWarp * kExchangeBytes];
};

// A stack that outlives the fibers that run on it.
struct StackOfThread {
  context::stack_context stack;
  void deallocate(context::stack_context&) const {}
};

// A copy that has been started: `group` ones were committed before.
struct Copy {
  std::byte* to;
  const void* from;
  int64_t bytes;
  int group;
};

bool IsAligned(const void* address, int64_t bytes) {
  return reinterpret_cast<uintptr_t>(address) % static_cast<uintptr_t>(bytes) ==
         0;
}

// Threads stay, on the same fiber, for the blocks that follow: a fiber costs
// the sanitizers more than what a thread of a small problem does.
struct Thread {
  std::unique_ptr<std::byte[]> stack =
      std::make_unique_for_overwrite<std::byte[]>(kStackBytes);
  context::fiber fiber;
  FiberAnnotations annotations;
  bool ended = true;
  int exchanges = 0;
  std::vector<Copy> copies;  // under way
  int groups = 0;            // committed
};

// The block that runs on this thread of the host.
class Block {
 public:
  Block() = default;
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() { EndThreads(); }

  void Run(int64_t index, int threads, int64_t shared_bytes,
           const std::function<void()>& kernel);

  void SetOrder(Order order) { order_ = order; }
  int thread() const { return current_; }
  int64_t index() const { return index_; }
  std::byte* shared() const { return shared_.get(); }

  void SyncBlock() { ArriveAndWait(all_); }
  void SyncWarp() { ArriveAndWait(warps_[current_ / kWarp].barrier); }
  bool SyncBlockOr(bool value);
  Exchange NextExchange() {
    Warp& warp = warps_[current_ / kWarp];
    if (warp.barrier.running != kWarp) Forbid("a lane asks one that has ended");
    return {warp.exchange[threads_[current_].exchanges++ & 1]};
  }

  void StartCopy(std::byte* to, const void* from, int64_t bytes);
  void CommitCopies() { ++threads_[current_].groups; }
  void EndCopies(int newest);
  void NoteAccess(const void* address, int64_t bytes, bool writes);

 private:
  struct FreeShared {
    void operator()(std::byte* memory) const {
      operator delete[](memory, kSharedAlignment);
    }
  };

  void EndThreads();
  void Start(int index);
  void Live();
  void Resume(int index);
  void ArriveAndWait(Barrier& barrier);
  void Yield();
  void End();
  // From the beginning of shared memory; may lie outside.
  int64_t OffsetOf(const void* address) const {
    return static_cast<const std::byte*>(address) - shared_.get();
  }

  Order order_ = Order::kAscending;
  int64_t index_ = 0;
  int current_ = 0;
  std::vector<Thread> threads_;
  std::vector<Warp> warps_;
  Barrier all_;
  bool or_values_[2] = {};
  std::unique_ptr<std::byte[], FreeShared> shared_;
  int64_t shared_bytes_ = -1;
  RaceCheck races_;
  context::fiber scheduler_;
  SchedulerAnnotations scheduler_annotations_;
  const std::function<void()>* kernel_ = nullptr;
  bool progress_ = false;
  bool ending_ = false;
};

Block& ThisBlock() {
  thread_local Block block;
  return block;
}

void Block::Run(int64_t index, int threads, int64_t shared_bytes,
                const std::function<void()>& kernel) {
  index_ = index;
  if (threads_.size() < static_cast<size_t>(threads)) {
    EndThreads();
    threads_ = std::vector<Thread>(static_cast<size_t>(threads));
    warps_ = std::vector<Warp>(static_cast<size_t>(threads / kWarp));
  }
  if (shared_bytes != shared_bytes_) {
    shared_.reset(new (kSharedAlignment)
                      std::byte[static_cast<size_t>(shared_bytes)]);
    shared_bytes_ = shared_bytes;
    races_.Begin(shared_bytes);
  }
  std::memset(shared_.get(), 0xFF, static_cast<size_t>(shared_bytes));
  // Not from 0: what the last block did is over.
  all_ = {.running = threads, .generation = all_.generation + 1};
  or_values_[0] = or_values_[1] = false;
  for (int w = 0; w < threads / kWarp; ++w) {
    warps_[w].barrier = {.running = kWarp};
  }
  kernel_ = &kernel;
  for (int t = 0; t < threads; ++t) Start(t);
  int left = threads;
  while (left > 0) {
    progress_ = false;
    for (int n = 0; n < threads; ++n) {
      const int t = order_ == Order::kAscending ? n : threads - 1 - n;
      if (threads_[t].ended) continue;
      Resume(t);
      if (threads_[t].ended) --left;
    }
    if (!progress_) Forbid("a kernel's threads wait for one that never comes");
  }
}

void Block::EndThreads() {
  ending_ = true;
  for (size_t t = 0; t < threads_.size(); ++t) {
    if (!threads_[t].fiber) continue;
    Resume(static_cast<int>(t));
    threads_[t].annotations.Destroy();
  }
  ending_ = false;
}

void Block::Start(int index) {
  Thread& thread = threads_[index];
  thread.ended = false;
  thread.exchanges = 0;
  thread.groups = 0;
  if (thread.fiber) return;
  context::stack_context stack;
  stack.size = kStackBytes;
  stack.sp = thread.stack.get() + kStackBytes;
  thread.annotations.Create(thread.stack.get(), kStackBytes);
  thread.fiber = context::fiber(
      std::allocator_arg, context::preallocated(stack.sp, stack.size, stack),
      StackOfThread{stack}, [this](context::fiber&& scheduler) {
        scheduler_ = std::move(scheduler);
        scheduler_annotations_.Left();
        Live();
        threads_[current_].annotations.LeaveForever(scheduler_annotations_);
        return std::move(scheduler_);
      });
}

// What a fiber does: one kernel after the other.
void Block::Live() {
  do {
    (*kernel_)();
    End();
    Yield();
  } while (!ending_);
}

void Block::Resume(int index) {
  current_ = index;
  Thread& thread = threads_[index];
  scheduler_annotations_.Enter(thread.annotations);
  thread.fiber = std::move(thread.fiber).resume();
  scheduler_annotations_.Returned();
}

void Block::Yield() {
  Thread& thread = threads_[current_];
  thread.annotations.Leave(scheduler_annotations_);
  scheduler_ = std::move(scheduler_).resume();
  thread.annotations.Entered(scheduler_annotations_);
}

void Block::ArriveAndWait(Barrier& barrier) {
  const uint64_t generation = barrier.generation;
  ++barrier.arrived;
  progress_ = true;
  if (barrier.IsComplete()) {
    barrier.Release();
    return;
  }
  while (barrier.generation == generation) Yield();
}

// Threads that have ended are waited for no longer.
void Block::End() {
  progress_ = true;
  threads_[current_].ended = true;
  if (!threads_[current_].copies.empty()) Forbid("a thread leaves its copies");
  if (warps_[current_ / kWarp].barrier.arrived > 0) {
    Forbid("a lane has ended that others ask");
  }
  for (Barrier* barrier : {&all_, &warps_[current_ / kWarp].barrier}) {
    --barrier->running;
    if (barrier->IsComplete()) barrier->Release();
  }
}

bool Block::SyncBlockOr(bool value) {
  // Two in turn: the last one is read until all have come to the next.
  const uint64_t turn = all_.generation & 1;
  if (all_.arrived == 0) or_values_[turn] = false;
  or_values_[turn] |= value;
  SyncBlock();
  return or_values_[turn];
}

void Block::StartCopy(std::byte* to, const void* from, int64_t bytes) {
  const int64_t offset = OffsetOf(to);
  if (!IsAligned(to, bytes) || !IsAligned(from, bytes)) {
    Forbid("a copy is not aligned");
  }
  if (offset < 0 || offset + bytes > shared_bytes_) {
    Forbid("a copy leaves shared memory");
  }
  races_.BeginCopy(offset, bytes, current_, all_.generation);
  std::memset(to, 0xFF, static_cast<size_t>(bytes));
  Thread& thread = threads_[current_];
  thread.copies.push_back({to, from, bytes, thread.groups});
}

void Block::EndCopies(int newest) {
  Thread& thread = threads_[current_];
  const auto arrives = [&](const Copy& copy) {
    return copy.group < thread.groups - newest;
  };
  for (const Copy& copy : thread.copies) {
    if (!arrives(copy)) continue;
    races_.EndCopy(OffsetOf(copy.to), copy.bytes, current_, all_.generation);
    const auto bytes = static_cast<size_t>(copy.bytes);
    if (copy.from == nullptr) {
      std::memset(copy.to, 0, bytes);
    } else {
      std::memcpy(copy.to, copy.from, bytes);
    }
  }
  std::erase_if(thread.copies, arrives);
}

void Block::NoteAccess(const void* address, int64_t bytes, bool writes) {
  const int64_t offset = OffsetOf(address);
  if (offset < 0 || offset + bytes > shared_bytes_) return;
  if (writes) {
    races_.Write(offset, bytes, current_, all_.generation);
  } else {
    races_.Read(offset, bytes, current_, all_.generation);
  }
}

}  // namespace

void SetOrder(Order order) { ThisBlock().SetOrder(order); }

void RunGrid(int64_t blocks, int threads, int64_t shared_bytes,
             const std::function<void()>& kernel) {
  Block& block = ThisBlock();
  for (int64_t index = 0; index < blocks; ++index) {
    block.Run(index, threads, shared_bytes, kernel);
  }
}

int ThreadIndex() { return ThisBlock().thread(); }
int64_t BlockIndex() { return ThisBlock().index(); }
std::byte* SharedMemory() { return ThisBlock().shared(); }
void SyncBlock() { ThisBlock().SyncBlock(); }
void SyncWarp() { ThisBlock().SyncWarp(); }
bool SyncBlockOr(bool value) { return ThisBlock().SyncBlockOr(value); }
void CopyAsync(void* to, const void* from, int64_t bytes) {
  ThisBlock().StartCopy(static_cast<std::byte*>(to), from, bytes);
}
void CommitCopies() { ThisBlock().CommitCopies(); }
void WaitForCopies(int newest) { ThisBlock().EndCopies(newest); }
void NoteAccess(const void* address, int64_t bytes, bool writes) {
  ThisBlock().NoteAccess(address, bytes, writes);
}
Exchange NextExchange() { return ThisBlock().NextExchange(); }

}  // namespace attention::cuda::emulation
