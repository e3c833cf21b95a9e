#ifndef ATTENTION_CORE_CUDA_PAGED_KEYS_H_
#define ATTENTION_CORE_CUDA_PAGED_KEYS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/cuda/transfer.h"
#include "core/validate.h"

/// Blocks of keys and values as the pages that kernels read
/// (AttentionArgs::key_pages).
namespace attention::cuda {

struct PagedKeys {
  int64_t page_keys = 0;
  /// Whether kernels read them where they lie, in the device's memory; else
  /// they lie in the host's.
  bool on_device = false;
};

/// How a problem's blocks are pages: two or more of equal length, but the last,
/// which may be shorter, all in the host's memory, or all in the device's and
/// there as kernels read them; or a single one in the device's memory whose
/// heads do not follow each other without gaps. Nothing for what is brought
/// into one piece, or lies in one.
std::optional<PagedKeys> PagedKeysOf(const ValidatedProblem& problem);

/// Pages of host memory on their way to the device: one that several problems
/// read is brought once.
class PageUploads {
 public:
  /// Offsets of a page's keys and values in the memory for all pages.
  struct Place {
    int64_t key = 0;
    int64_t value = 0;
  };

  /// Where the block will lie, in a page of page_keys. Its memory must stay as
  /// it is until Bring().
  Place Add(const ValidatedProblem::Block& block, int64_t page_keys);

  /// Of device memory for all pages.
  int64_t bytes() const { return bytes_; }

  /// Appends all pages to what `up` brings.
  void Bring(std::byte* memory, Uploader& up) const;

 private:
  struct Page {
    const ValidatedProblem::Block* block;  // that with the most keys
    int64_t page_keys;
    Place place;
  };
  // What makes blocks one page: where keys and values begin, how they lie.
  using Identity = std::tuple<const std::byte*, const std::byte*, Shape, Shape,
                              int64_t, int64_t, int64_t, int64_t>;

  std::map<Identity, size_t> known_;
  std::vector<Page> pages_;
  int64_t bytes_ = 0;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PAGED_KEYS_H_
