#include "benchmarks/pages.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <optional>

#include "core/datatype.h"

namespace attention::bench {
namespace {

// Tokens `first` to `end` of (S, Hkv, D), or of scales (S, Hkv), with the
// extents of a block of one entry: (1, Hkv, n, D), (1, Hkv, n).
TensorView TokensOf(const TensorView& packed, int64_t first, int64_t end) {
  TensorView entry = packed;
  entry.data += first * packed.strides[0];
  entry.shape = {1, packed.shape[1], end - first};
  entry.strides = {0, packed.strides[1], packed.strides[0]};
  if (packed.shape.size() == 3) {
    entry.shape.push_back(packed.shape[2]);
    entry.strides.push_back(packed.strides[2]);
  }
  return entry;
}

// Where page `n` of `count` lies: some 0.6 of all pages further each time, and
// each one once.
int64_t PlaceOf(int64_t n, int64_t count) {
  int64_t step = count * 3 / 5 + 1;
  while (std::gcd(step, count) != 1) ++step;
  return n * step % count;
}

// Fills a page with keys from `first` on.
void CopyKeys(const TensorView& all, int64_t first, const TensorView& page) {
  const int64_t row = page.shape[3] * ByteSize(page.type);
  for (int64_t b = 0; b < page.shape[0]; ++b) {
    for (int64_t h = 0; h < page.shape[1]; ++h) {
      for (int64_t n = 0; n < page.shape[2]; ++n) {
        std::memcpy(const_cast<std::byte*>(page.At(b, h, n, 0)),
                    all.At(b, h, first + n, 0), static_cast<size_t>(row));
      }
    }
  }
}

std::optional<TensorView> KeysFrom(const std::optional<TensorView>& scales,
                                   int64_t first, int64_t count) {
  if (!scales) return std::nullopt;
  TensorView part = *scales;
  part.data += first * part.strides[2];
  part.shape[2] = count;
  return part;
}

}  // namespace

KeyValueBlock EntryOf(const KeyValueBlock& packed, int64_t first, int64_t end) {
  KeyValueBlock entry;
  entry.key = TokensOf(packed.key, first, end);
  entry.value = TokensOf(packed.value, first, end);
  if (packed.key_scale) {
    entry.key_scale = TokensOf(*packed.key_scale, first, end);
    entry.value_scale = TokensOf(*packed.value_scale, first, end);
  }
  return entry;
}

KeyValueBlocks CutIntoPages(const KeyValueBlock& whole, int64_t keys,
                            std::vector<Tensor>& memory) {
  const int64_t length = whole.key.shape[2];
  const int64_t count = (length + keys - 1) / keys;
  KeyValueBlocks blocks(static_cast<size_t>(count));
  for (TensorView KeyValueBlock::*of :
       {&KeyValueBlock::key, &KeyValueBlock::value}) {
    const TensorView& all = whole.*of;
    const Shape shape = {count, all.shape[0], all.shape[1], keys, all.shape[3]};
    memory.push_back(Tensor::Create(all.type, shape).value());
    const TensorView pages = memory.back().view();
    for (int64_t n = 0; n < count; ++n) {
      TensorView& page = blocks[static_cast<size_t>(n)].*of;
      page = all;
      page.data = pages.data + PlaceOf(n, count) * pages.strides[0];
      page.shape[2] = std::min(keys, length - n * keys);
      std::copy(pages.strides.begin() + 1, pages.strides.end(),
                page.strides.begin());
      CopyKeys(all, n * keys, page);
    }
  }
  for (int64_t n = 0; n < count; ++n) {
    KeyValueBlock& block = blocks[static_cast<size_t>(n)];
    const int64_t first = n * keys;
    block.key_scale = KeysFrom(whole.key_scale, first, block.key.shape[2]);
    block.value_scale = KeysFrom(whole.value_scale, first, block.key.shape[2]);
  }
  return blocks;
}

}  // namespace attention::bench
