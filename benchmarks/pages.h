#ifndef ATTENTION_BENCHMARKS_PAGES_H_
#define ATTENTION_BENCHMARKS_PAGES_H_

#include <cstdint>
#include <vector>

#include "core/problem.h"
#include "core/tensor.h"

namespace attention::bench {

/// Tokens `first` to `end` of packed keys and values, (S, Hkv, D), as a block
/// of one entry, (1, Hkv, n, D), of the same memory.
KeyValueBlock EntryOf(const KeyValueBlock& packed, int64_t first, int64_t end);

/// Copies (B, Hkv, n, D) into pages of `keys` keys, (B, Hkv, keys, D) each,
/// that lie out of order in `memory`. Scales stay where they are.
KeyValueBlocks CutIntoPages(const KeyValueBlock& whole, int64_t keys,
                            std::vector<Tensor>& memory);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_PAGES_H_
