#include "core/cuda/device_check.h"

#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/cuda/rearrange.h"
#include "core/cuda/transfer.h"
#include "core/tensor_view.h"

namespace attention::cuda {
namespace {

constexpr int64_t kBytes = int64_t{1} << 20;

// Bytes that repeat late, and with no power of 2.
std::byte PatternAt(int64_t n) { return static_cast<std::byte>(n % 251); }

// Memory of the device, given back in the end.
class Memory {
 public:
  Memory(Device& device, std::byte* data) : device_(device), data_(data) {}
  ~Memory() { device_.Free(data_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  std::byte* data() const { return data_; }

 private:
  Device& device_;
  std::byte* const data_;
};

absl::Status Fetch(const std::byte* from, std::vector<std::byte>& to,
                   Stream& stream) {
  Downloader down(stream);
  down.Copy(from, to.data(), static_cast<int64_t>(to.size()));
  absl::Status status = down.Finish();
  return status.ok() ? stream.Synchronize() : status;
}

absl::Status WrongByte(absl::string_view what, int64_t n) {
  return absl::InternalError(absl::StrCat(what, ": byte ", n, " is wrong"));
}

// Exchanges the extents of a matrix (5, 7) of rows of `unit` bytes: the place
// and the strides leave no larger unit.
absl::Status CheckRearrange(Device& device, Stream& stream, std::byte* memory,
                            int64_t unit) {
  constexpr int64_t kRows = 5;
  constexpr int64_t kColumns = 7;
  const int64_t bytes = kRows * kColumns * unit;
  std::vector<std::byte> sent(static_cast<size_t>(bytes));
  for (int64_t n = 0; n < bytes; ++n) {
    sent[static_cast<size_t>(n)] = PatternAt(n);
  }
  std::byte* const from = memory + unit;
  std::byte* const to = memory + kBytes / 2 + unit;
  Uploader up(stream);
  up.Begin(from);
  up.Append(sent.data(), bytes);
  absl::Status status = up.Finish();
  if (!status.ok()) return status;
  TensorView matrix =
      ContiguousView(DataType::kUint8, {kRows, kColumns, unit}, from);
  status = Rearrange(RearrangeArgsOf(matrix, to, {unit, kRows * unit, 1}),
                     device.kernels(), stream);
  if (!status.ok()) return status;
  std::vector<std::byte> found(sent.size());
  status = Fetch(to, found, stream);
  if (!status.ok()) return status;
  for (int64_t n = 0; n < bytes; ++n) {
    const int64_t row = n / unit % kRows;
    const int64_t column = n / unit / kRows;
    const int64_t at = (row * kColumns + column) * unit + n % unit;
    if (found[static_cast<size_t>(n)] != PatternAt(at)) {
      return WrongByte(absl::StrCat("rearrange, units of ", unit), n);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckPinned(Device& device, Stream& stream, std::byte* memory) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::unique_ptr<void, void (*)(void*)> held(
      std::aligned_alloc(page, 2 * kBytes), &std::free);
  if (held == nullptr) return absl::ResourceExhaustedError("pinned memory");
  const absl::Span<std::byte> all = {static_cast<std::byte*>(held.get()),
                                     2 * kBytes};
  // What cannot be pinned here is not pinned later either.
  if (!device.PinHost(all).ok()) return device.Health();
  std::byte* const sent = all.data();
  std::byte* const found = sent + kBytes;
  for (int64_t n = 0; n < kBytes; ++n) sent[n] = PatternAt(n);
  absl::Status status = stream.UploadPinned(sent, memory, kBytes);
  if (status.ok()) status = stream.DownloadPinned(memory, found, kBytes);
  if (status.ok()) status = stream.Synchronize();
  for (int64_t n = 0; n < kBytes && status.ok(); ++n) {
    if (found[n] != PatternAt(n)) status = WrongByte("pinned memory", n);
  }
  const absl::Status unpinned = device.UnpinHost(all);
  if (!unpinned.ok()) {
    [[maybe_unused]] void* const stays = held.release();
  }
  return status.ok() ? unpinned : status;
}

}  // namespace

absl::Status CheckDevice(Device& device, const OnCase& on_case) {
  on_case("first use of the device");
  const absl::StatusOr<std::unique_ptr<Stream>> stream = device.NewStream();
  if (!stream.ok()) return stream.status();
  const absl::StatusOr<std::byte*> allocated = device.Allocate(kBytes);
  if (!allocated.ok()) return allocated.status();
  const Memory memory(device, *allocated);
  absl::Status status;
  for (const int64_t unit : {1, 2, 4, 16}) {
    on_case(absl::StrCat("rearrange, units of ", unit));
    if (status.ok()) {
      status = CheckRearrange(device, **stream, memory.data(), unit);
    }
  }
  on_case("pinned memory");
  return status.ok() ? CheckPinned(device, **stream, memory.data()) : status;
}

}  // namespace attention::cuda
