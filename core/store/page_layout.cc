#include "core/store/page_layout.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/validate_parts.h"

namespace attention::store {
namespace {

static_assert((kPageKeys & (kPageKeys - 1)) == 0);
// A part of a page is then a multiple of 64 bytes, whatever its width.
static_assert(kPageKeys % 64 == 0);

// Scales as rows of width 1.
TensorView AsRows(const TensorView& scales) {
  TensorView rows = scales;
  rows.shape.push_back(1);
  rows.strides.push_back(ByteSize(scales.type));
  return rows;
}

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

// With a first extent of 1, so that an error counts heads as heads.
TensorView WithBatch(const TensorView& view) {
  TensorView batch = view;
  batch.shape.insert(batch.shape.begin(), 1);
  batch.strides.insert(batch.strides.begin(), 0);
  return batch;
}

absl::Status CheckScales(absl::string_view field, const TensorView& rows,
                         const std::optional<TensorView>& scales) {
  std::optional<TensorView> unused;
  if (!scales || rows.shape.size() != 3 || scales->shape.size() != 2 ||
      !absl::c_equal(scales->shape, absl::MakeConstSpan(rows.shape).first(2))) {
    return internal::ReadScales(field, rows, scales, /*values_checked=*/false,
                                unused);
  }
  return internal::ReadScales(field, WithBatch(rows), WithBatch(*scales),
                              /*values_checked=*/false, unused);
}

}  // namespace

PageLayout::PageLayout(const SequenceForm& form)
    : heads_(form.heads), type_(form.type) {
  key_ = AddPart(type_, form.key_width);
  value_ = AddPart(type_, form.value_width);
  if (!IsScaledType(type_)) return;
  key_scale_ = AddPart(DataType::kFloat32, 1);
  value_scale_ = AddPart(DataType::kFloat32, 1);
}

PageLayout::Part PageLayout::AddPart(DataType type, int64_t width) {
  const int64_t offset = page_bytes_;
  page_bytes_ += heads_ * kPageKeys * width * ByteSize(type);
  return {type, width, offset};
}

absl::StatusOr<int64_t> PageLayout::CheckRows(const KeyValueBlock& rows) const {
  absl::Status status = CheckPart("key", rows.key, type_, heads_, key_.width);
  status.Update(CheckPart("value", rows.value, type_, heads_, value_.width));
  if (!status.ok()) return status;
  const int64_t count = rows.key.shape[rows.key.shape.size() - 2];
  const int64_t values = rows.value.shape[rows.value.shape.size() - 2];
  if (count != values) {
    return absl::InvalidArgumentError(
        absl::StrCat("value: ", values, " rows, key has ", count));
  }
  status = CheckScales("key_scale", rows.key, rows.key_scale);
  status.Update(CheckScales("value_scale", rows.value, rows.value_scale));
  if (!status.ok()) return status;
  return count;
}

template <typename Visit>
bool PageLayout::VisitParts(const KeyValueBlock& rows,
                            const Visit& visit) const {
  if (!visit(key_, rows.key) || !visit(value_, rows.value)) return false;
  return !IsScaledType(type_) ||
         (visit(key_scale_, AsRows(*rows.key_scale)) &&
          visit(value_scale_, AsRows(*rows.value_scale)));
}

void PageLayout::Write(const KeyValueBlock& rows, int64_t first, int64_t count,
                       std::byte* page, int64_t row) const {
  VisitParts(rows, [&](const Part& part, const TensorView& from) {
    return VisitRows(page + part.offset, row, from, first, count, CopyPiece);
  });
}

bool PageLayout::Equal(const KeyValueBlock& rows, int64_t first, int64_t count,
                       const std::byte* page, int64_t row) const {
  return VisitParts(rows, [&](const Part& part, const TensorView& from) {
    return VisitRows(page + part.offset, row, from, first, count, SamePiece);
  });
}

void PageLayout::Copy(const std::byte* from, std::byte* to,
                      int64_t count) const {
  Write(Views(from, count), 0, count, to, 0);
}

KeyValueBlock PageLayout::Views(const std::byte* page, int64_t count) const {
  KeyValueBlock views = {View(key_, heads_, page, count),
                         View(value_, heads_, page, count)};
  if (!IsScaledType(type_)) return views;
  for (const auto& [part, scales] :
       {std::pair(&key_scale_, &views.key_scale),
        std::pair(&value_scale_, &views.value_scale)}) {
    TensorView& view = scales->emplace(View(*part, heads_, page, count));
    view.shape.pop_back();
    view.strides.pop_back();
  }
  views.scales_checked = true;
  return views;
}

TensorView PageLayout::View(const Part& part, int64_t heads,
                            const std::byte* page, int64_t count) {
  TensorView view =
      ContiguousView(part.type, {1, heads, kPageKeys, part.width},
                     page == nullptr ? nullptr : page + part.offset);
  view.shape[2] = count;
  return view;
}

}  // namespace attention::store
