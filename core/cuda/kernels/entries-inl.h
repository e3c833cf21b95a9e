#ifndef ATTENTION_CORE_CUDA_KERNELS_ENTRIES_INL_H_
#define ATTENTION_CORE_CUDA_KERNELS_ENTRIES_INL_H_

// Several problems in one launch: a kernel's code, for a block of one of them.
// Each problem has the blocks, and so the bits, that it has alone. Tensors that
// are copied likewise.

#include "core/cuda/kernels/arguments.h"
#include "core/cuda/portable/portable.h"

namespace attention::cuda {

/// The entry that a block of the launch belongs to.
template <typename Args>
ATTENTION_KERNEL_CODE int64_t EntryOf(const EntriesOf<Args>& args,
                                      int64_t block) {
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

/// kCode: what a block does of one entry.
template <auto kCode, typename Args = AttentionArgs>
ATTENTION_KERNEL_CODE void OfEntries(const EntriesOf<Args>& args,
                                     int64_t block) {
  const int64_t entry = EntryOf(args, block);
  kCode(args.entries[entry], block - args.first_blocks[entry]);
}

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_KERNELS_ENTRIES_INL_H_
