#ifndef ATTENTION_CORE_CUDA_KERNELS_KERNEL_TABLE_H_
#define ATTENTION_CORE_CUDA_KERNELS_KERNEL_TABLE_H_

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/kernels/limits.h"

namespace attention::cuda {

/// Launches kernels: on a device, or the same sources on the host's threads.
/// Host code does not know which. `shape` is what limits.h says for the
/// arguments, `stream` a cudaStream_t (ignored on the host, where a launch
/// returns when its kernel has ended). Each returns 0, or a cudaError_t of the
/// launch itself. Results do not depend on anything but the arguments.
///
/// A problem's order: project (where it has parameters), attend, attend_mma or
/// attend_wgmma, merge (where keys were split), weights (where wanted), and
/// recompute where a row was marked.
///
/// Those of entries compute several problems in one launch, each as its kernel
/// would alone, to the bit; only they read pages. `like` is any of the
/// problems: all have its score and types, and of attend_entries and
/// recompute_entries a value width up to 64 if it has one, and above if not; of
/// attend_entries also its AttendSide(), of attend_mma_entries its MmaWidth()
/// and MmaRows(). The launch has the problems' blocks together, and the most
/// shared memory that one of them needs.
struct KernelTable {
  /// Every score and type, in FP32. Writes output, lse, marks, row_max and
  /// row_sum, or partials.
  int (*attend)(const AttentionArgs&, const LaunchShape& shape, void* stream);
  /// The same on tensor cores: where ServesMma() says so, and no weights are
  /// wanted. (`weights` would compute scores that are rounded otherwise, and
  /// huge ones are then far off.)
  int (*attend_mma)(const AttentionArgs&, const LaunchShape& shape,
                    void* stream);
  /// The same with the instructions of compute capability 9.0, which no other
  /// device has: where ServesWgmma() says so too, no weights are wanted, and
  /// there is no mask, bias, ALiBi or dropout. Null in a build without CUTLASS.
  int (*attend_wgmma)(const AttentionArgs&, const LaunchShape& shape,
                      void* stream);
  /// What attend or attend_mma left in partials becomes what they write without
  /// splits.
  int (*merge)(const AttentionArgs&, const LaunchShape& shape, void* stream);
  /// All of `weights`, from row_max and row_sum, which `attend` has left.
  int (*weights)(const AttentionArgs&, const LaunchShape& shape, void* stream);
  /// The output of rows that are marked, from the start: values that are not
  /// finite reach it where their keys take part and nowhere else. Returns at
  /// once where there are no such rows or values. For arguments with splits of
  /// 1.
  int (*recompute)(const AttentionArgs&, const LaunchShape& shape,
                   void* stream);
  int (*attend_entries)(const EntriesArgs&, const AttentionArgs& like,
                        const LaunchShape& shape, void* stream);
  int (*attend_mma_entries)(const EntriesArgs&, const AttentionArgs& like,
                            const LaunchShape& shape, void* stream);
  int (*merge_entries)(const EntriesArgs&, const AttentionArgs& like,
                       const LaunchShape& shape, void* stream);
  int (*recompute_entries)(const EntriesArgs&, const AttentionArgs& like,
                           const LaunchShape& shape, void* stream);
  int (*project)(const ProjectArgs&, const LaunchShape& shape, void* stream);
  int (*softmax_rows)(const SoftmaxRowsArgs&, const LaunchShape& shape,
                      void* stream);
  int (*finish_output)(const FinishOutputArgs&, const LaunchShape& shape,
                       void* stream);
  /// What lies on the device already, to where the other kernels read it, or
  /// from where they wrote it.
  int (*rearrange)(const RearrangeArgs&, const LaunchShape& shape,
                   void* stream);
  int (*rearrange_entries)(const RearrangeEntriesArgs&,
                           const LaunchShape& shape, void* stream);
};

/// Compiled by nvcc; of the library attention_cuda_kernels.
const KernelTable& DeviceKernels();

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_KERNEL_TABLE_H_
