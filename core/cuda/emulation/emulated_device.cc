#include "core/cuda/emulation/emulated_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <iterator>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/emulated_gemm.h"
#include "core/cuda/emulation/emulated_kernels.h"
#include "core/cuda/pinned_ranges.h"

namespace attention::cuda {
namespace {

constexpr std::align_val_t kAlignment{256};

// The state of a device that its streams share with it.
struct State {
  std::shared_ptr<Faults> faults;
  std::mutex mutex;
  absl::Status health;
  PinnedRanges pinned;
  std::map<const std::byte*, int64_t> allocations;

  // Whether a piece begins in an allocation and ends beyond it.
  bool LeavesAllocation(const std::byte* begin, int64_t bytes) {
    const std::lock_guard lock(mutex);
    const auto after = allocations.upper_bound(begin);
    if (after == allocations.begin()) return false;
    const auto& [memory, size] = *std::prev(after);
    return begin < memory + size && begin + bytes > memory + size;
  }
  absl::Status Health() {
    const std::lock_guard lock(mutex);
    return health;
  }
  void Lose(absl::string_view reason) {
    const std::lock_guard lock(mutex);
    if (health.ok()) health = absl::UnavailableError(reason);
  }
};

std::byte* AllocateBytes(int64_t bytes) {
  // 0xFF everywhere: NaN in every floating-point type.
  void* const memory = ::operator new(static_cast<size_t>(bytes), kAlignment);
  std::memset(memory, 0xFF, static_cast<size_t>(bytes));
  return static_cast<std::byte*>(memory);
}

void FreeBytes(std::byte* memory) { ::operator delete(memory, kAlignment); }

class EmulatedStream final : public Stream {
 public:
  explicit EmulatedStream(std::shared_ptr<State> state)
      : state_(std::move(state)) {
    for (std::byte*& memory : buffers_) memory = AllocateBytes(kBufferBytes);
  }
  ~EmulatedStream() override {
    // What hangs is never done.
    if (!hangs_) CopyUpTo(begun_);
    for (std::byte* memory : buffers_) FreeBytes(memory);
  }

  void* handle() const override {
    // What is launched next comes after all copies.
    if (!hangs_) CopyUpTo(begun_);
    return nullptr;
  }
  std::byte* buffer(int index) const override {
    return buffers_[static_cast<size_t>(index)];
  }

  absl::Status Upload(int index, int64_t offset, std::byte* to,
                      int64_t bytes) override {
    state_->faults->uploaded += bytes;
    return Begin({to, buffer(index) + offset, bytes}, to);
  }
  absl::Status Download(int index, int64_t offset, const std::byte* from,
                        int64_t bytes) override {
    return Begin({buffer(index) + offset, from, bytes}, from);
  }
  bool Reaches(const std::byte* begin, int64_t bytes) const override {
    return state_->pinned.Contain(begin, bytes);
  }
  absl::Status UploadPinned(const std::byte* from, std::byte* to,
                            int64_t bytes) override {
    if (!Reaches(from, bytes)) return NotPinned();
    state_->faults->uploaded += bytes;
    state_->faults->uploaded_pinned += bytes;
    return Begin({to, from, bytes}, to);
  }
  absl::Status DownloadPinned(const std::byte* from, std::byte* to,
                              int64_t bytes) override {
    if (!Reaches(to, bytes)) return NotPinned();
    return Begin({to, from, bytes}, from);
  }
  absl::Status Fill(std::byte* to, uint8_t value, int64_t bytes) override {
    CopyUpTo(begun_);
    std::memset(to, value, static_cast<size_t>(bytes));
    return state_->Health();
  }
  int32_t* marked() const override { return &marked_; }
  absl::Status Mark(int index) override {
    marks_[static_cast<size_t>(index)] = begun_;
    return state_->Health();
  }
  absl::StatusOr<bool> Reached(int index) override {
    absl::Status health = state_->Health();
    if (!health.ok()) return health;
    if (hangs_ || state_->faults->marks < queues_until_) return false;
    CopyUpTo(marks_[static_cast<size_t>(index)]);
    ++state_->faults->marks;
    return true;
  }

  absl::Status Launched(absl::string_view kernel, int code) override {
    if (state_->faults->launches_left-- <= 0) {
      state_->Lose(absl::StrCat("the device is lost: ", kernel, ": emulated"));
      return absl::InternalError(absl::StrCat(kernel, ": emulated failure"));
    }
    if (code != 0) {
      return absl::InternalError(absl::StrCat(kernel, ": error ", code));
    }
    if (Is(state_->faults->aborts_in, kernel)) std::abort();
    hangs_ = hangs_ || Is(state_->faults->hangs_in, kernel);
    if (Is(state_->faults->queues_in, kernel)) {
      state_->faults->queues_in = nullptr;
      queues_until_ = state_->faults->marks + state_->faults->queues_behind;
    }
    return absl::OkStatus();
  }

  absl::Status Multiply(const Gemm& product) override {
    CopyUpTo(begun_);
    EmulateGemm(product);
    return state_->Health();
  }

 protected:
  void Lose(absl::string_view reason) override { state_->Lose(reason); }

 private:
  static bool Is(const char* faulty, absl::string_view kernel) {
    return faulty != nullptr && kernel == faulty;
  }

  struct Copy {
    std::byte* to;
    const std::byte* from;
    int64_t bytes;
  };

  static absl::Status NotPinned() {
    return absl::InternalError("emulated: host memory that is not pinned");
  }

  absl::Status Begin(Copy copy, const std::byte* on_device) {
    if (state_->LeavesAllocation(on_device, copy.bytes)) {
      return absl::InternalError("emulated: a copy beyond its allocation");
    }
    copies_.push_back(copy);
    ++begun_;
    ++state_->faults->copies;
    return state_->Health();
  }

  void CopyUpTo(int64_t count) const {
    for (; done_ < count; ++done_) {
      const Copy& copy = copies_.front();
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      copies_.pop_front();
    }
  }

  const std::shared_ptr<State> state_;
  std::array<std::byte*, kBuffers> buffers_ = {};
  std::array<int64_t, kBuffers + 1> marks_ = {};  // copies begun by then
  mutable std::deque<Copy> copies_;               // begun and not done
  mutable int32_t marked_ = 0;
  int64_t begun_ = 0;
  mutable int64_t done_ = 0;
  bool hangs_ = false;
  int64_t queues_until_ = 0;  // so many marks were reached
};

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(DeviceProperties properties, std::shared_ptr<Faults> faults)
      : properties_(std::move(properties)), state_(std::make_shared<State>()) {
    state_->faults = faults ? std::move(faults) : std::make_shared<Faults>();
  }
  ~EmulatedDevice() override {
    if (arena_ != nullptr) FreeBytes(arena_);
  }

  const DeviceProperties& properties() const override { return properties_; }
  const KernelTable& kernels() const override { return EmulatedKernels(); }

  absl::StatusOr<int64_t> FreeMemory() override {
    const Faults& faults = *state_->faults;
    return faults.memory - faults.allocated;
  }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    if (state_->faults->before_allocate) state_->faults->before_allocate();
    const std::lock_guard lock(state_->mutex);
    Faults& faults = *state_->faults;
    if (faults.allocated + bytes > faults.memory ||
        (faults.edge_to_edge && arena_used_ + bytes > kArenaBytes)) {
      return absl::ResourceExhaustedError("emulated: out of memory");
    }
    std::byte* const memory =
        faults.edge_to_edge ? TakeOfArena(bytes) : AllocateBytes(bytes);
    faults.allocated += bytes;
    state_->allocations[memory] = bytes;
    return memory;
  }

  void Free(std::byte* memory) override {
    if (state_->faults->before_free) state_->faults->before_free();
    const std::lock_guard lock(state_->mutex);
    const auto found = state_->allocations.find(memory);
    state_->faults->allocated -= found->second;
    state_->allocations.erase(found);
    if (!state_->faults->edge_to_edge) FreeBytes(memory);
  }

  // A handle is the name of a POSIX shared-memory object, filled up with 0: so
  // another process can share it here, too.
  absl::StatusOr<std::byte*> OpenShared(absl::string_view handle,
                                        int64_t bytes) override {
    const std::string name(handle.data(),
                           strnlen(handle.data(), handle.size()));
    const int object = shm_open(name.c_str(), O_RDWR, 0);
    if (object < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("raw_handle: emulated: no object '", name, "'"));
    }
    struct stat facts = {};
    fstat(object, &facts);
    void* memory = MAP_FAILED;
    if (facts.st_size >= bytes) {
      memory = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                    MAP_SHARED, object, 0);
    }
    close(object);
    if (memory == MAP_FAILED) {
      return absl::InvalidArgumentError(absl::StrCat(
          "byte_size: ", bytes, " (the object has ", facts.st_size, ")"));
    }
    const std::lock_guard lock(mutex_);
    ++state_->faults->shared;
    shared_[static_cast<std::byte*>(memory)] = bytes;
    return static_cast<std::byte*>(memory);
  }

  void CloseShared(std::byte* memory) override {
    const std::lock_guard lock(mutex_);
    const auto found = shared_.find(memory);
    munmap(memory, static_cast<size_t>(found->second));
    shared_.erase(found);
    --state_->faults->shared;
  }

  absl::Status PinHost(absl::Span<std::byte> memory) override {
    state_->pinned.Add(memory);
    ++state_->faults->pinned;
    return absl::OkStatus();
  }
  absl::Status UnpinHost(absl::Span<std::byte> memory) override {
    state_->pinned.Remove(memory);
    absl::Status health = state_->Health();
    if (health.ok()) --state_->faults->pinned;
    return health;
  }

  absl::Status CopyToHost(const std::byte* from, std::byte* to,
                          int64_t bytes) override {
    std::memcpy(to, from, static_cast<size_t>(bytes));
    return state_->Health();
  }

  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override {
    ++state_->faults->streams;
    return std::make_unique<EmulatedStream>(state_);
  }

  absl::Status LoadGemm() override {
    if (!state_->faults->without_gemm) return absl::OkStatus();
    return absl::UnavailableError("emulated: no cuBLAS");
  }

  absl::Status Health() const override { return state_->Health(); }

 private:
  static constexpr int64_t kArenaBytes = int64_t{64} << 20;

  // Nothing of it is used twice.
  std::byte* TakeOfArena(int64_t bytes) {
    if (arena_ == nullptr) arena_ = AllocateBytes(kArenaBytes);
    return arena_ + std::exchange(arena_used_, arena_used_ + bytes);
  }

  const DeviceProperties properties_;
  const std::shared_ptr<State> state_;
  std::byte* arena_ = nullptr;
  int64_t arena_used_ = 0;
  std::mutex mutex_;
  std::map<std::byte*, int64_t> shared_;  // mapped
};

}  // namespace

DeviceProperties EmulatedProperties() {
  return {.name = "emulated",
          .compute_capability = 90,
          .multiprocessors = 4,
          .shared_memory_per_block = int64_t{227} * 1024,
          .memory = int64_t{1} << 40};
}

std::unique_ptr<Device> MakeEmulatedDevice(DeviceProperties properties,
                                           std::shared_ptr<Faults> faults) {
  return std::make_unique<EmulatedDevice>(std::move(properties),
                                          std::move(faults));
}

}  // namespace attention::cuda
