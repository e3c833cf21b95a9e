#include "core/cuda/paged_keys.h"

#include <algorithm>
#include <array>
#include <limits>

#include "core/cuda/job_transfer.h"
#include "core/cuda/kernels/limits.h"
#include "core/cuda/plan_memory.h"

namespace attention::cuda {
namespace {

bool OnDevice(const TensorView& view) {
  return view.space == MemorySpace::kCudaDevice;
}

// Whether a block's keys or values lie as those of a page.
bool LiesAsPage(const TensorView& view, int64_t page_keys) {
  const int64_t row = view.shape[3] * ByteSize(view.type);
  const bool rows =
      view.shape[3] <= 1 || view.strides[3] == ByteSize(view.type);
  return rows && (view.shape[2] == 1 || view.strides[2] == row) &&
         (view.shape[1] == 1 || view.strides[1] == page_keys * row) &&
         reinterpret_cast<uintptr_t>(view.data) % kReadAlignment == 0;
}

// A page's keys, or values, from `to` on; 0 behind the keys that it has.
void BringPart(const TensorView& view, int64_t page_keys, std::byte* to,
               Uploader& up) {
  static constexpr std::array<std::byte, 4096> kZeros = {};
  up.BeginNext(to);
  if (view.shape[2] == page_keys) return up.AppendView(view);
  int64_t gap =
      (page_keys - view.shape[2]) * view.shape[3] * ByteSize(view.type);
  for (int64_t head = 0; head < view.shape[1]; ++head) {
    up.AppendView(HeadOf(view, 0, head));
    for (int64_t left = gap; left > 0;) {
      const auto piece = std::min(left, static_cast<int64_t>(kZeros.size()));
      up.Append(kZeros.data(), piece);
      left -= piece;
    }
  }
}

int64_t PageBytes(const TensorView& view, int64_t page_keys) {
  const int64_t bytes =
      view.shape[1] * page_keys * view.shape[3] * ByteSize(view.type);
  return CeilDivide(bytes, kPlaceAlignment) * kPlaceAlignment;
}

}  // namespace

std::optional<PagedKeys> PagedKeysOf(const ValidatedProblem& problem) {
  const auto& blocks = problem.key_value;
  if (problem.batch != 1 || blocks.empty() ||
      problem.key_length > std::numeric_limits<int32_t>::max()) {
    return std::nullopt;
  }
  const TensorView& first = blocks[0].key;
  PagedKeys pages = {.page_keys = blocks[0].key_count,
                     .on_device = OnDevice(first)};
  if (blocks.size() == 1) {
    if (!pages.on_device || IsRowMajor(first)) return std::nullopt;
    pages.page_keys =
        first.strides[1] / (first.shape[3] * ByteSize(first.type));
  }
  for (const ValidatedProblem::Block& block : blocks) {
    const bool last = &block == &blocks.back();
    if (last ? block.key_count > pages.page_keys
             : block.key_count != pages.page_keys) {
      return std::nullopt;
    }
    for (const TensorView* view : {&block.key, &block.value}) {
      if (OnDevice(*view) != pages.on_device ||
          (pages.on_device && !LiesAsPage(*view, pages.page_keys))) {
        return std::nullopt;
      }
    }
  }
  return pages;
}

PageUploads::Place PageUploads::Add(const ValidatedProblem::Block& block,
                                    int64_t page_keys) {
  const TensorView& key = block.key;
  const TensorView& value = block.value;
  const Identity identity = {key.data,       value.data,   key.strides,
                             value.strides,  key.shape[1], key.shape[3],
                             value.shape[3], page_keys};
  const auto [found, is_new] = known_.try_emplace(identity, pages_.size());
  if (!is_new) {
    Page& page = pages_[found->second];
    if (block.key_count > page.block->key_count) page.block = &block;
    return page.place;
  }
  const Place place = {.key = bytes_,
                       .value = bytes_ + PageBytes(key, page_keys)};
  bytes_ = place.value + PageBytes(value, page_keys);
  pages_.push_back({&block, page_keys, place});
  return place;
}

void PageUploads::Bring(std::byte* memory, Uploader& up) const {
  for (const Page& page : pages_) {
    BringPart(page.block->key, page.page_keys, memory + page.place.key, up);
    BringPart(page.block->value, page.page_keys, memory + page.place.value, up);
  }
}

}  // namespace attention::cuda
