#ifndef ATTENTION_CORE_CUDA_KERNELS_DEVICE_KERNELS_H_
#define ATTENTION_CORE_CUDA_KERNELS_DEVICE_KERNELS_H_

// What the .cu files share: launching a kernel, and their parts of the table.

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

#include "core/cuda/kernels/kernel_table.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

/// A kernel's code on a device. kLeastBlocks: of a multiprocessor at once, for
/// which the compiler saves registers; 0: as it likes.
template <auto kCode, int kThreads, int kLeastBlocks, typename Args>
__global__ void __launch_bounds__(kThreads, kLeastBlocks)
    Kernel(const __grid_constant__ Args args) {
  kCode(args, BlockIndex());
}

/// Lets one kernel ask for all the shared memory that a block may have, once on
/// each device. Never for the bytes of one launch: what is set holds for those
/// of all threads, and a smaller launch between another's setting and launching
/// would make that one fail.
class SharedMemoryLimit {
 public:
  /// On the calling thread's device. cudaSuccess, or the error.
  cudaError_t Raise(const void* kernel);

 private:
  std::atomic<uint64_t> raised_{0};  // a bit for each device
};

/// 0, or the launch's cudaError_t.
template <auto kCode, int kThreads, int kLeastBlocks = 0, typename Args>
int LaunchKernel(const Args& args, const LaunchShape& shape, void* stream) {
  const auto kernel = Kernel<kCode, kThreads, kLeastBlocks, Args>;
  // More than what every kernel may have must be asked for.
  constexpr int kUnasked = 48 * 1024;
  if (shape.shared_bytes > kUnasked) {
    static SharedMemoryLimit limit;
    const cudaError_t error =
        limit.Raise(reinterpret_cast<const void*>(kernel));
    if (error != cudaSuccess) return error;
  }
  kernel<<<static_cast<unsigned>(shape.blocks),
           static_cast<unsigned>(shape.threads),
           static_cast<size_t>(shape.shared_bytes),
           static_cast<cudaStream_t>(stream)>>>(args);
  return cudaGetLastError();
}

int LaunchAttend(const AttentionArgs& args, const LaunchShape& shape,
                 void* stream);
int LaunchAttendMma(const AttentionArgs& args, const LaunchShape& shape,
                    void* stream);
int LaunchAttendWgmma(const AttentionArgs& args, const LaunchShape& shape,
                      void* stream);
int LaunchMerge(const AttentionArgs& args, const LaunchShape& shape,
                void* stream);
int LaunchWeights(const AttentionArgs& args, const LaunchShape& shape,
                  void* stream);
int LaunchRecompute(const AttentionArgs& args, const LaunchShape& shape,
                    void* stream);
int LaunchAttendEntries(const EntriesArgs& entries, const AttentionArgs& like,
                        const LaunchShape& shape, void* stream);
int LaunchAttendMmaEntries(const EntriesArgs& entries,
                           const AttentionArgs& like, const LaunchShape& shape,
                           void* stream);
int LaunchMergeEntries(const EntriesArgs& entries, const AttentionArgs& like,
                       const LaunchShape& shape, void* stream);
int LaunchRecomputeEntries(const EntriesArgs& entries,
                           const AttentionArgs& like, const LaunchShape& shape,
                           void* stream);
int LaunchProject(const ProjectArgs& args, const LaunchShape& shape,
                  void* stream);
int LaunchSoftmaxRows(const SoftmaxRowsArgs& args, const LaunchShape& shape,
                      void* stream);
int LaunchFinishOutput(const FinishOutputArgs& args, const LaunchShape& shape,
                       void* stream);
int LaunchRearrange(const RearrangeArgs& args, const LaunchShape& shape,
                    void* stream);
int LaunchRearrangeEntries(const RearrangeEntriesArgs& entries,
                           const LaunchShape& shape, void* stream);

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_DEVICE_KERNELS_H_
