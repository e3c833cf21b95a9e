#include "benchmarks/device/device_limits.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/cuda/kernels/limits.h"

namespace attention::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Work = absl::FunctionRef<absl::Status()>;

constexpr int kLimitRounds = 7;
constexpr int kRepeats = 10;  // in a round

// The median over rounds of one repetition's seconds.
absl::StatusOr<double> SecondsOf(cuda::Stream& stream, Work work) {
  std::vector<double> seconds;
  for (int round = 0; round <= kLimitRounds; ++round) {  // the first warms up
    const Clock::time_point begin = Clock::now();
    absl::Status status;
    for (int n = 0; n < kRepeats && status.ok(); ++n) status = work();
    if (status.ok()) status = stream.Synchronize();
    if (!status.ok()) return status;
    const std::chrono::duration<double> passed = Clock::now() - begin;
    if (round > 0) seconds.push_back(passed.count() / kRepeats);
  }
  std::sort(seconds.begin(), seconds.end());
  return seconds[seconds.size() / 2];
}

absl::StatusOr<double> RateOf(double amount,
                              const absl::StatusOr<double>& seconds) {
  if (!seconds.ok()) return seconds.status();
  return amount / *seconds;
}

// Normal numbers, not all alike, in every type: products of zeros are faster.
absl::Status FillWithNumbers(cuda::Stream& stream, std::byte* to,
                             int64_t bytes) {
  constexpr int64_t kAtOnce = cuda::Stream::kBufferBytes;
  uint32_t state = 1;
  for (int64_t n = 0; n < kAtOnce / 2; ++n) {
    state = state * 1664525 + 1013904223;
    // Exponents 2^-1 to 2^0 of BF16, signs and mantissas at random.
    const uint32_t bits = 0x3F00U | (state >> 16 & 0x80FFU);
    reinterpret_cast<uint16_t*>(stream.buffer(0))[n] =
        static_cast<uint16_t>(bits);
  }
  for (int64_t at = 0; at < bytes; at += kAtOnce) {
    absl::Status status =
        stream.Upload(0, 0, to + at, std::min(kAtOnce, bytes - at));
    if (!status.ok()) return status;
  }
  return stream.Synchronize();
}

struct Places {
  std::byte *a, *b, *c, *workspace;
};

absl::StatusOr<double> ProductRate(cuda::Stream& stream, const Places& places,
                                   cuda::GemmType type, int64_t size) {
  cuda::Gemm product;
  product.type = type;
  product.transpose_b = true;
  product.m = product.n = product.k = size;
  product.a = places.a;
  product.b = places.b;
  product.c = reinterpret_cast<float*>(places.c);
  product.a_row = product.b_row = product.c_row = size;
  product.workspace = places.workspace;
  const auto n = static_cast<double>(size);
  return RateOf(2e-12 * n * n * n,
                SecondsOf(stream, [&] { return stream.Multiply(product); }));
}

absl::StatusOr<double> CopyRate(cuda::Device& device, cuda::Stream& stream,
                                const Places& places, int64_t bytes) {
  cuda::RearrangeArgs args;
  args.from = places.a;
  args.to = places.c;
  args.unit = 16;
  args.extents[4] = bytes / args.unit;
  args.from_strides[4] = args.to_strides[4] = args.unit;
  const auto copy = [&] {
    return stream.Launched(
        "rearrange", device.kernels().rearrange(
                         args, cuda::RearrangeShape(args), stream.handle()));
  };
  return RateOf(2e-9 * static_cast<double>(bytes), SecondsOf(stream, copy));
}

}  // namespace

void MeasureLimits(cuda::Device& device, cuda::Stream& stream, int64_t size,
                   absl::FunctionRef<void(const DeviceLimit&)> tell) {
  const int64_t bytes = 4 * size * size;  // of a matrix of FP32
  absl::StatusOr<std::byte*> memory =
      device.Allocate(3 * bytes + cuda::kWorkspaceBytes);
  absl::Status status = memory.status();
  Places places = {};
  if (status.ok()) {
    places = {*memory, *memory + bytes, *memory + 2 * bytes,
              *memory + 3 * bytes};
    status = FillWithNumbers(stream, *memory, 2 * bytes);
  }
  if (!status.ok()) {
    tell({"memory", "bytes", status});
    return;
  }
  const auto product = [&](const char* name, cuda::GemmType type) {
    tell({absl::StrCat(name, " product"), "TFLOP/s",
          ProductRate(stream, places, type, size)});
  };
  product("BF16", cuda::GemmType::kBfloat16);
  product("FP16", cuda::GemmType::kFloat16);
  product("FP32", cuda::GemmType::kFloat32);
  tell({"copy on the device", "GB/s", CopyRate(device, stream, places, bytes)});
  constexpr int64_t kBuffer = cuda::Stream::kBufferBytes;
  const int64_t part = std::min(kBuffer, bytes);
  const double giga = 1e-9 * static_cast<double>(part);
  tell({"copy to the device", "GB/s", RateOf(giga, SecondsOf(stream, [&] {
                                               return stream.Upload(
                                                   0, 0, places.a, part);
                                             }))});
  tell({"copy from the device", "GB/s", RateOf(giga, SecondsOf(stream, [&] {
                                                 return stream.Download(
                                                     0, 0, places.a, part);
                                               }))});
  device.Free(*memory);
}

}  // namespace attention::bench
