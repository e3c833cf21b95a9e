#include "core/cuda/page_rows.h"

#include "core/cuda/plan_memory.h"
#include "core/cuda/rearrange.h"

namespace attention::cuda {
namespace {

int64_t Aligned(int64_t bytes) {
  return CeilDivide(bytes, kPlaceAlignment) * kPlaceAlignment;
}

int64_t RowBytes(const TensorView& view) {
  return view.shape[3] * ByteSize(view.type);
}

// Whether a view (1, heads, n, width) is of the first rows of a page with room
// for so many keys.
bool IsOfPage(const TensorView& view, int64_t keys) {
  const int64_t row = RowBytes(view);
  return view.space == MemorySpace::kHost && view.shape[0] == 1 && row > 0 &&
         view.shape[2] <= keys && view.strides[1] == keys * row &&
         view.strides[2] == row && view.strides[3] == ByteSize(view.type);
}

}  // namespace

std::optional<PageForm> PageFormOf(const ValidatedProblem::Block& block) {
  const int64_t row = RowBytes(block.key);
  if (block.page == 0 || row == 0) return std::nullopt;
  const int64_t keys = block.key.strides[1] / row;
  if (!IsOfPage(block.key, keys) || !IsOfPage(block.value, keys)) {
    return std::nullopt;
  }
  return PageForm{.key = block.key.data,
                  .value = block.value.data,
                  .heads = block.key.shape[1],
                  .keys = keys,
                  .key_row = row,
                  .value_row = RowBytes(block.value)};
}

int64_t BytesOf(const PageForm& form) {
  const int64_t rows = form.heads * form.keys;
  return Aligned(rows * form.key_row) + Aligned(rows * form.value_row);
}

PagePlace PlaceIn(const PageForm& form, std::byte* memory) {
  return {.key = memory,
          .value = memory + Aligned(form.heads * form.keys * form.key_row)};
}

PageRowsUpload::PageRowsUpload(absl::Span<const PageRows> rows) {
  for (const PageRows& of : rows) {
    if (of.end - of.first == of.form.keys) {
      whole_.push_back(&of);
      continue;
    }
    Add(of.block->key, of, of.place.key);
    Add(of.block->value, of, of.place.value);
  }
  const auto count = static_cast<int64_t>(parts_.size());
  args_at_ = bytes_;
  blocks_at_ =
      args_at_ + Aligned(count * static_cast<int64_t>(sizeof(RearrangeArgs)));
  bytes_ = blocks_at_ + Aligned(count * static_cast<int64_t>(sizeof(int64_t)));
}

void PageRowsUpload::Add(const TensorView& view, const PageRows& rows,
                         std::byte* page) {
  const int64_t count = rows.end - rows.first;
  Part part = {.from = view,
               .to = page + rows.first * view.strides[2],
               .staged = bytes_};
  part.from.data += rows.first * view.strides[2];
  part.from.shape[2] = count;
  bytes_ += Aligned(rows.form.heads * count * view.strides[2]);
  parts_.push_back(part);
}

absl::Status PageRowsUpload::Begin(const KernelTable& kernels, Stream& stream,
                                   std::byte* memory) const {
  Uploader up(stream);
  // No copy may reach over two allocations, which may lie edge to edge: each
  // page begins one, and so does what is staged.
  for (const PageRows* page : whole_) {
    up.Begin(page->place.key);
    up.AppendView(page->block->key);
    up.BeginNext(page->place.value);
    up.AppendView(page->block->value);
  }
  up.Begin(memory);
  std::vector<RearrangeArgs> args;
  std::vector<int64_t> first_blocks;
  LaunchShape shape;
  for (const Part& part : parts_) {
    up.BeginNext(memory + part.staged);
    up.AppendView(part.from);
    const TensorView staged =
        ContiguousView(part.from.type, part.from.shape, memory + part.staged);
    args.push_back(RearrangeArgsOf(staged, part.to, part.from.strides));
    const LaunchShape of_part = RearrangeShape(args.back());
    first_blocks.push_back(shape.blocks);
    shape.blocks += of_part.blocks;
    shape.threads = of_part.threads;
  }
  if (parts_.empty()) return up.Finish();
  const auto bytes = [](const auto& all) {
    return static_cast<int64_t>(all.size() * sizeof(all[0]));
  };
  up.BeginNext(memory + args_at_);
  up.Append(args.data(), bytes(args));
  up.BeginNext(memory + blocks_at_);
  up.Append(first_blocks.data(), bytes(first_blocks));
  absl::Status status = up.Finish();
  if (!status.ok()) return status;
  const RearrangeEntriesArgs entries = {
      .entries = reinterpret_cast<const RearrangeArgs*>(memory + args_at_),
      .first_blocks = reinterpret_cast<const int64_t*>(memory + blocks_at_),
      .count = static_cast<int64_t>(args.size())};
  return stream.Launched(
      "rearrange_entries",
      kernels.rearrange_entries(entries, shape, stream.handle()));
}

}  // namespace attention::cuda
