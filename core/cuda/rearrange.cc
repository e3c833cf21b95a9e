#include "core/cuda/rearrange.h"

#include <algorithm>

namespace attention::cuda {
namespace {

// Whether units of `unit` bytes never lie across a multiple of their size.
bool Fits(int32_t unit, const RearrangeArgs& args, int64_t run_bytes) {
  const auto divides = [unit](int64_t number) { return number % unit == 0; };
  return reinterpret_cast<uintptr_t>(args.from) % unit == 0 &&
         reinterpret_cast<uintptr_t>(args.to) % unit == 0 &&
         divides(run_bytes) &&
         std::all_of(args.from_strides, args.from_strides + 4, divides) &&
         std::all_of(args.to_strides, args.to_strides + 4, divides);
}

}  // namespace

RearrangeArgs RearrangeArgsOf(const TensorView& from, std::byte* to,
                              absl::Span<const int64_t> to_strides) {
  RearrangeArgs args;
  args.from = from.data;
  args.to = to;
  const auto rank = static_cast<size_t>(from.rank());
  for (size_t n = 0; n < rank; ++n) {
    const size_t place = n + 4 - rank;
    args.extents[place] = from.shape[n];
    args.from_strides[place] = from.strides[n];
    args.to_strides[place] = to_strides[n];
  }
  int64_t run = ByteSize(from.type);
  for (int n = 3; n >= 0; --n) {
    const bool without_gaps =
        args.from_strides[n] == run && args.to_strides[n] == run;
    if (!without_gaps && args.extents[n] != 1) break;
    run *= args.extents[n];
    args.extents[n] = 1;
    args.from_strides[n] = args.to_strides[n] = 0;
  }
  for (const int32_t unit : {16, 4, 2, 1}) {
    args.unit = unit;
    if (Fits(unit, args, run)) break;
  }
  args.extents[4] = run / args.unit;
  args.from_strides[4] = args.to_strides[4] = args.unit;
  return args;
}

absl::Status Rearrange(const RearrangeArgs& args, const KernelTable& kernels,
                       Stream& stream) {
  const LaunchShape shape = RearrangeShape(args);
  if (shape.blocks == 0) return absl::OkStatus();
  return stream.Launched("rearrange",
                         kernels.rearrange(args, shape, stream.handle()));
}

}  // namespace attention::cuda
