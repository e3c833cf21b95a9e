#ifndef ATTENTION_CORE_CUDA_PAGE_ROWS_H_
#define ATTENTION_CORE_CUDA_PAGE_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "core/cuda/device.h"
#include "core/cuda/transfer.h"
#include "core/validate.h"

/// Rows of pages that stay (KeyValueBlock::page), on their way from the host's
/// memory to a copy of the page in a device's.
namespace attention::cuda {

/// A page as the host has it: keys (heads, keys, width), and values likewise,
/// both row-major.
struct PageForm {
  const std::byte* key = nullptr;
  const std::byte* value = nullptr;
  int64_t heads = 0;
  int64_t keys = 0;     // that it has room for
  int64_t key_row = 0;  // bytes of one row
  int64_t value_row = 0;

  bool operator==(const PageForm&) const = default;
};

/// The page that a block has the first rows of. Nothing where it is none that
/// stays, or lies otherwise.
std::optional<PageForm> PageFormOf(const ValidatedProblem::Block& block);

/// What a copy takes: a multiple of 256.
int64_t BytesOf(const PageForm& form);

/// Where a copy has its keys and values, which lie as in the host's page.
struct PagePlace {
  std::byte* key = nullptr;
  std::byte* value = nullptr;
};
/// In memory aligned to 256 bytes.
PagePlace PlaceIn(const PageForm& form, std::byte* memory);

/// Rows first ... end - 1 of every head of a block, which are to be copied.
struct PageRows {
  const ValidatedProblem::Block* block = nullptr;
  PageForm form;
  PagePlace place;
  int64_t first = 0;
  int64_t end = 0;

  int64_t bytes() const {
    return form.heads * (end - first) * (form.key_row + form.value_row);
  }
};

/// Copies rows to their pages: whole pages at once; of others the rows of all
/// side by side, and one launch puts them where they belong.
class PageRowsUpload {
 public:
  /// `rows` must outlive it.
  explicit PageRowsUpload(absl::Span<const PageRows> rows);

  /// Of device memory, for Begin(); 0 where all pages are whole.
  int64_t bytes() const { return bytes_; }

  /// Begins all copies on the stream. `memory` is to stay until they are done.
  absl::Status Begin(const KernelTable& kernels, Stream& stream,
                     std::byte* memory) const;

 private:
  // Rows of a page's keys or values.
  struct Part {
    TensorView from;  // (heads, count, width)
    std::byte* to;    // the first of them, in the page
    int64_t staged;   // offset in the memory
  };

  void Add(const TensorView& view, const PageRows& rows, std::byte* page);

  std::vector<const PageRows*> whole_;
  std::vector<Part> parts_;
  int64_t args_at_ = 0;
  int64_t blocks_at_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PAGE_ROWS_H_
