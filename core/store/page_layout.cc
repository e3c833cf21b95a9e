#include "core/store/page_layout.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attention::store {
namespace {

static_assert((kPageKeys & (kPageKeys - 1)) == 0);
// A part of a page is then a multiple of 64 bytes, whatever its width.
static_assert(kPageKeys % 64 == 0);

// Rows first ... of every head of a view (.., Hkv, n, width).
struct Rows {
  const std::byte* data;
  int64_t head_stride;  // bytes
  int64_t row_stride;
  int64_t element_stride;
};

Rows RowsFrom(const TensorView& view, int64_t first) {
  const size_t rank = view.shape.size();
  const int64_t row_stride = view.strides[rank - 2];
  return {view.data + first * row_stride, view.strides[rank - 3], row_stride,
          view.strides[rank - 1]};
}

// One head's part of a page and the rows that belong there, in the largest
// pieces that lie in one piece on both sides: visit(in the page, in the rows,
// bytes), until it says no.
template <typename Byte, typename Visit>
bool VisitHead(Byte* page, const std::byte* rows, const Rows& source,
               int64_t count, int64_t width, int64_t element,
               const Visit& visit) {
  const int64_t row_bytes = width * element;
  if (source.element_stride == element && source.row_stride == row_bytes) {
    return visit(page, rows, static_cast<size_t>(count * row_bytes));
  }
  for (int64_t row = 0; row < count; ++row) {
    Byte* to = page + row * row_bytes;
    const std::byte* from = rows + row * source.row_stride;
    if (source.element_stride == element) {
      if (!visit(to, from, static_cast<size_t>(row_bytes))) return false;
      continue;
    }
    for (int64_t i = 0; i < width; ++i) {
      if (!visit(to + i * element, from + i * source.element_stride,
                 static_cast<size_t>(element))) {
        return false;
      }
    }
  }
  return true;
}

// The same of all heads; `page` is the first head's row 0.
template <typename Byte, typename Visit>
bool VisitRows(Byte* page, int64_t row, const TensorView& view, int64_t first,
               int64_t count, const Visit& visit) {
  const size_t rank = view.shape.size();
  const int64_t heads = view.shape[rank - 3];
  const int64_t width = view.shape[rank - 1];
  const int64_t element = ByteSize(view.type);
  if (width == 0 || count == 0) return true;
  const Rows source = RowsFrom(view, first);
  for (int64_t head = 0; head < heads; ++head) {
    Byte* to = page + (head * kPageKeys + row) * width * element;
    if (!VisitHead(to, source.data + head * source.head_stride, source, count,
                   width, element, visit)) {
      return false;
    }
  }
  return true;
}

bool CopyPiece(std::byte* to, const std::byte* from, size_t bytes) {
  std::memcpy(to, from, bytes);
  return true;
}

bool SamePiece(const std::byte* a, const std::byte* b, size_t bytes) {
  return std::memcmp(a, b, bytes) == 0;
}

absl::Status CheckPart(absl::string_view field, const TensorView& view,
                       DataType type, int64_t heads, int64_t width) {
  const auto error = [field](const auto&... parts) {
    return absl::InvalidArgumentError(absl::StrCat(field, ": ", parts...));
  };
  if (view.type != type) {
    return error("datatype ", Name(view.type), ", the sequence has ",
                 Name(type));
  }
  if (view.space != MemorySpace::kHost) {
    return error("lies in a device's memory, which cannot stay there");
  }
  const Shape& shape = view.shape;
  const size_t rank = shape.size();
  const bool fits = (rank == 3 || (rank == 4 && shape[0] == 1)) &&
                    shape[rank - 3] == heads && shape[rank - 2] >= 0 &&
                    shape[rank - 1] == width;
  if (fits) return absl::OkStatus();
  return error("shape ", ShapeToString(shape), " (expected: [", heads, ", n, ",
               width, "], as the sequence was made)");
}

}  // namespace

PageLayout::PageLayout(const SequenceForm& form)
    : heads_(form.heads),
      key_width_(form.key_width),
      value_width_(form.value_width),
      type_(form.type),
      value_offset_(heads_ * kPageKeys * key_width_ * ByteSize(type_)),
      value_bytes_(heads_ * kPageKeys * value_width_ * ByteSize(type_)) {}

absl::StatusOr<int64_t> PageLayout::CheckRows(const KeyValueBlock& rows) const {
  absl::Status status = CheckPart("key", rows.key, type_, heads_, key_width_);
  status.Update(CheckPart("value", rows.value, type_, heads_, value_width_));
  if (!status.ok()) return status;
  const int64_t count = rows.key.shape[rows.key.shape.size() - 2];
  const int64_t values = rows.value.shape[rows.value.shape.size() - 2];
  if (count == values) return count;
  return absl::InvalidArgumentError(
      absl::StrCat("value: ", values, " rows, key has ", count));
}

void PageLayout::Write(const KeyValueBlock& rows, int64_t first, int64_t count,
                       std::byte* page, int64_t row) const {
  VisitRows(page, row, rows.key, first, count, CopyPiece);
  VisitRows(page + value_offset_, row, rows.value, first, count, CopyPiece);
}

bool PageLayout::Equal(const KeyValueBlock& rows, int64_t first, int64_t count,
                       const std::byte* page, int64_t row) const {
  return VisitRows(page, row, rows.key, first, count, SamePiece) &&
         VisitRows(page + value_offset_, row, rows.value, first, count,
                   SamePiece);
}

void PageLayout::Copy(const std::byte* from, std::byte* to,
                      int64_t count) const {
  Write(Views(from, count), 0, count, to, 0);
}

KeyValueBlock PageLayout::Views(const std::byte* page, int64_t count) const {
  const std::byte* values = page == nullptr ? nullptr : page + value_offset_;
  return {View(page, count, key_width_), View(values, count, value_width_)};
}

TensorView PageLayout::View(const std::byte* first, int64_t count,
                            int64_t width) const {
  TensorView view = ContiguousView(type_, {1, heads_, kPageKeys, width}, first);
  view.shape[2] = count;
  return view;
}

}  // namespace attention::store
