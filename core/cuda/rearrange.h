#ifndef ATTENTION_CORE_CUDA_REARRANGE_H_
#define ATTENTION_CORE_CUDA_REARRANGE_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/cuda/device.h"
#include "core/tensor_view.h"

/// Tensors that lie in the device's memory already: what other processes share.
namespace attention::cuda {

/// What the rearrange kernel is told to bring a view of one to four extents to
/// `to`, there with `to_strides` (bytes, one for each extent): in the largest
/// units that addresses and strides allow, because a device does not read
/// across a multiple of what it reads.
RearrangeArgs RearrangeArgsOf(const TensorView& from, std::byte* to,
                              absl::Span<const int64_t> to_strides);

/// Begins the copy on the stream. Nothing where an extent is 0.
absl::Status Rearrange(const RearrangeArgs& args, const KernelTable& kernels,
                       Stream& stream);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_REARRANGE_H_
