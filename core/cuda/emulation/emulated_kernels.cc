#include "core/cuda/emulation/emulated_kernels.h"

#include "core/cuda/emulation/emulated_wgmma.h"
#include "core/cuda/emulation/emulation.h"
#include "core/cuda/kernels/attend-inl.h"
#include "core/cuda/kernels/dispatch-inl.h"
#include "core/cuda/kernels/entries-inl.h"
#include "core/cuda/kernels/merge-inl.h"
#include "core/cuda/kernels/mma-inl.h"
#include "core/cuda/kernels/project-inl.h"
#include "core/cuda/kernels/rearrange-inl.h"
#include "core/cuda/kernels/recompute-inl.h"
#include "core/cuda/kernels/softmax-inl.h"
#include "core/cuda/kernels/weights-inl.h"

namespace attention::cuda {
namespace {

// A launch whose kernel has ended when it returns.
template <typename Args, typename Kernel>
int Launch(const Args& args, const LaunchShape& shape, const Kernel& kernel) {
  emulation::RunGrid(shape.blocks, shape.threads, shape.shared_bytes,
                     [&args, &kernel] { kernel(args, BlockIndex()); });
  return 0;
}

// DispatchAttend() and the like hand on which kernel it is.
int LaunchAttend(const AttentionArgs& args, const LaunchShape& shape, void*) {
  return DispatchAttend(
      args, [&]<Score kScore, int kColumnGroups, int kSide>() {
        return Launch(args, shape, Attend<kScore, kColumnGroups, kSide>);
      });
}

int LaunchRecompute(const AttentionArgs& args, const LaunchShape& shape,
                    void*) {
  return DispatchRecompute(args, [&]<Score kScore, int kColumnGroups>() {
    return Launch(args, shape, Recompute<kScore, kColumnGroups>);
  });
}

int LaunchWeights(const AttentionArgs& args, const LaunchShape& shape, void*) {
  return DispatchScore(args, [&]<Score kScore>() {
    return Launch(args, shape, StoreWeights<kScore>);
  });
}

int LaunchMma(const AttentionArgs& args, const LaunchShape& shape, void*) {
  return DispatchMma(args, [&]<typename Instance>() {
    return Launch(args, shape, AttendMma<Instance>);
  });
}

int LaunchAttendEntries(const EntriesArgs& entries, const AttentionArgs& like,
                        const LaunchShape& shape, void*) {
  return DispatchAttend(
      like, [&]<Score kScore, int kColumnGroups, int kSide>() {
        return Launch(entries, shape,
                      OfEntries<Attend<kScore, kColumnGroups, kSide, true>>);
      });
}

int LaunchMmaEntries(const EntriesArgs& entries, const AttentionArgs& like,
                     const LaunchShape& shape, void*) {
  return DispatchMma</*kEntries=*/true>(like, [&]<typename Instance>() {
    return Launch(entries, shape, OfEntries<AttendMma<Instance>>);
  });
}

int LaunchMergeEntries(const EntriesArgs& entries, const AttentionArgs&,
                       const LaunchShape& shape, void*) {
  return Launch(entries, shape, OfEntries<Merge>);
}

int LaunchRecomputeEntries(const EntriesArgs& entries,
                           const AttentionArgs& like, const LaunchShape& shape,
                           void*) {
  return DispatchRecompute(like, [&]<Score kScore, int kColumnGroups>() {
    return Launch(entries, shape,
                  OfEntries<Recompute<kScore, kColumnGroups, true>>);
  });
}

#ifdef ATTENTION_EMULATES_WGMMA
int LaunchWgmma(const AttentionArgs& args, const LaunchShape& shape, void*) {
  return LaunchEmulatedWgmma(args, shape);
}
#else
// Without CUTLASS there is no code to emulate: each block's rows come from
// attend_mma's, so that what is around the kernel has the real results.
int LaunchWgmma(const AttentionArgs& args, const LaunchShape& shape, void*) {
  const LaunchShape mma = MmaShape(args);
  return mma.blocks == shape.blocks ? LaunchMma(args, mma, nullptr) : 1;
}
#endif

template <auto kKernel, typename Args>
int LaunchOne(const Args& args, const LaunchShape& shape, void*) {
  return Launch(args, shape, kKernel);
}

}  // namespace

const KernelTable& EmulatedKernels() {
  static constexpr KernelTable kTable = {
      .attend = LaunchAttend,
      .attend_mma = LaunchMma,
      .attend_wgmma = LaunchWgmma,
      .merge = LaunchOne<Merge, AttentionArgs>,
      .weights = LaunchWeights,
      .recompute = LaunchRecompute,
      .attend_entries = LaunchAttendEntries,
      .attend_mma_entries = LaunchMmaEntries,
      .merge_entries = LaunchMergeEntries,
      .recompute_entries = LaunchRecomputeEntries,
      .project = LaunchOne<Project, ProjectArgs>,
      .softmax_rows = LaunchOne<SoftmaxRows, SoftmaxRowsArgs>,
      .finish_output = LaunchOne<FinishOutput, FinishOutputArgs>,
      .rearrange = LaunchOne<Rearrange, RearrangeArgs>,
      .rearrange_entries =
          LaunchOne<OfEntries<Rearrange, RearrangeArgs>, RearrangeEntriesArgs>,
  };
  return kTable;
}

}  // namespace attention::cuda
