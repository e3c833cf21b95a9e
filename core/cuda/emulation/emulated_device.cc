#include "core/cuda/emulation/emulated_device.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/emulation/emulated_kernels.h"
#include "core/cuda/emulation/tensor_core.h"
#include "core/cuda/pinned_ranges.h"
#include "core/element.h"

namespace attention::cuda {
namespace {

constexpr std::align_val_t kAlignment{256};

// The state of a device that its streams share with it.
struct State {
  std::shared_ptr<Faults> faults;
  std::mutex mutex;
  absl::Status health;
  PinnedRanges pinned;

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

// One after the other, as cuBLAS's kernels for FP32 are likely to.
float SumOfProducts(const float* a, const float* b, int64_t count) {
  float sum = 0;
  for (int64_t k = 0; k < count; ++k) sum = std::fma(a[k], b[k], sum);
  return sum;
}

// Of whole blocks.
float TensorCoreSum(const float* a, const float* b, int64_t count) {
  float sum = 0;
  for (int64_t k = 0; k < count; k += kTensorCoreBlock) {
    sum = AddProducts(sum, a + k, b + k);
  }
  return sum;
}

// A factor of a product of matrices: rows of A or columns of B in FP32, each
// with zeros up to whole blocks.
class Lines {
 public:
  // Elements are so many numbers apart: from one line to the next, and along a
  // line.
  Lines(DataType type, const std::byte* from, int64_t lines, int64_t line_step,
        int64_t count, int64_t step)
      : length_((count + kTensorCoreBlock - 1) / kTensorCoreBlock *
                kTensorCoreBlock),
        numbers_(static_cast<size_t>(lines * length_)) {
    const int64_t size = ByteSize(type);
    for (int64_t line = 0; line < lines; ++line) {
      for (int64_t k = 0; k < count; ++k) {
        numbers_[static_cast<size_t>(line * length_ + k)] = static_cast<float>(
            LoadElement(type, from + (line * line_step + k * step) * size));
      }
    }
  }

  const float* line(int64_t n) const { return numbers_.data() + n * length_; }
  int64_t length() const { return length_; }

 private:
  int64_t length_;
  std::vector<float> numbers_;
};

DataType TypeOf(GemmType type) {
  switch (type) {
    case GemmType::kFloat16:
      return DataType::kFloat16;
    case GemmType::kBfloat16:
      return DataType::kBFloat16;
    case GemmType::kFloat32:
      break;
  }
  return DataType::kFloat32;
}

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
    Begin({to, buffer(index) + offset, bytes});
    return state_->Health();
  }
  absl::Status Download(int index, int64_t offset, const std::byte* from,
                        int64_t bytes) override {
    Begin({buffer(index) + offset, from, bytes});
    return state_->Health();
  }
  bool Reaches(const std::byte* begin, int64_t bytes) const override {
    return state_->pinned.Contain(begin, bytes);
  }
  absl::Status UploadPinned(const std::byte* from, std::byte* to,
                            int64_t bytes) override {
    if (!Reaches(from, bytes)) return NotPinned();
    state_->faults->uploaded += bytes;
    Begin({to, from, bytes});
    return state_->Health();
  }
  absl::Status DownloadPinned(const std::byte* from, std::byte* to,
                              int64_t bytes) override {
    if (!Reaches(to, bytes)) return NotPinned();
    Begin({to, from, bytes});
    return state_->Health();
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
    if (hangs_) return false;
    CopyUpTo(marks_[static_cast<size_t>(index)]);
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
    return absl::OkStatus();
  }

  absl::Status Multiply(const Gemm& product) override {
    CopyUpTo(begun_);
    // As cuBLAS may write to any of it: to its ends here.
    constexpr int64_t kEnd = 4096;
    std::memset(product.workspace, 0xFF, kEnd);
    std::memset(product.workspace + kWorkspaceBytes - kEnd, 0xFF, kEnd);
    for (int64_t n = 0; n < product.batch; ++n) MultiplyOne(product, n);
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

  void Begin(Copy copy) {
    copies_.push_back(copy);
    ++begun_;
    ++state_->faults->copies;
  }

  void CopyUpTo(int64_t count) const {
    for (; done_ < count; ++done_) {
      const Copy& copy = copies_.front();
      std::memcpy(copy.to, copy.from, static_cast<size_t>(copy.bytes));
      copies_.pop_front();
    }
  }

  static void MultiplyOne(const Gemm& product, int64_t n) {
    const DataType type = TypeOf(product.type);
    const int64_t size = ByteSize(type);
    const auto* const a =
        static_cast<const std::byte*>(product.a) + n * product.a_matrix * size;
    const auto* const b =
        static_cast<const std::byte*>(product.b) + n * product.b_matrix * size;
    float* const c = product.c + n * product.c_matrix;
    const Lines rows(type, a, product.m, product.a_row, product.k, 1);
    const Lines columns(type, b, product.n,
                        product.transpose_b ? product.b_row : 1, product.k,
                        product.transpose_b ? 1 : product.b_row);
    for (int64_t i = 0; i < product.m; ++i) {
      for (int64_t j = 0; j < product.n; ++j) {
        c[i * product.c_row + j] =
            type == DataType::kFloat32
                ? SumOfProducts(rows.line(i), columns.line(j), product.k)
                : TensorCoreSum(rows.line(i), columns.line(j), rows.length());
      }
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
};

class EmulatedDevice final : public Device {
 public:
  EmulatedDevice(DeviceProperties properties, std::shared_ptr<Faults> faults)
      : properties_(std::move(properties)), state_(std::make_shared<State>()) {
    state_->faults = faults ? std::move(faults) : std::make_shared<Faults>();
  }

  const DeviceProperties& properties() const override { return properties_; }
  const KernelTable& kernels() const override { return EmulatedKernels(); }

  absl::StatusOr<int64_t> FreeMemory() override {
    const Faults& faults = *state_->faults;
    return faults.memory - faults.allocated;
  }

  absl::StatusOr<std::byte*> Allocate(int64_t bytes) override {
    const std::lock_guard lock(mutex_);
    Faults& faults = *state_->faults;
    if (faults.allocated + bytes > faults.memory) {
      return absl::ResourceExhaustedError("emulated: out of memory");
    }
    std::byte* const memory = AllocateBytes(bytes);
    faults.allocated += bytes;
    allocations_[memory] = bytes;
    return memory;
  }

  void Free(std::byte* memory) override {
    if (state_->faults->before_free) state_->faults->before_free();
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(memory);
    state_->faults->allocated -= found->second;
    allocations_.erase(found);
    FreeBytes(memory);
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
  void UnpinHost(absl::Span<std::byte> memory) override {
    state_->pinned.Remove(memory);
    --state_->faults->pinned;
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
  const DeviceProperties properties_;
  const std::shared_ptr<State> state_;
  std::mutex mutex_;
  std::map<std::byte*, int64_t> allocations_;
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
