#ifndef ATTENTION_CORE_CUDA_KERNELS_ENTRIES_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ENTRIES_INL_H_

// Several problems in one launch: a kernel's code, for a block of one of them.
// Each problem has the blocks, and so the bits, that it has alone.

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

/// The problem that a block of the launch belongs to.
ATTENTION_KERNEL_CODE int64_t EntryOf(const EntriesArgs& args, int64_t block) {
  int64_t entry = 0;  // begins at the block or before
  int64_t end = args.count;
  while (end - entry > 1) {
    const int64_t middle = (entry + end) / 2;
    if (args.first_blocks[middle] <= block) {
      entry = middle;
    } else {
      end = middle;
    }
  }
  return entry;
}

/// kCode: what a block does of one problem.
template <auto kCode>
ATTENTION_KERNEL_CODE void OfEntries(const EntriesArgs& args, int64_t block) {
  const int64_t entry = EntryOf(args, block);
  kCode(args.entries[entry], block - args.first_blocks[entry]);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ENTRIES_INL_H_
