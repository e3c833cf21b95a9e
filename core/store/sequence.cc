#include "core/store/sequence.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::store {
namespace {

// Beside the layers' own objects: this one, its counts, and what the allocator
// rounds up.
constexpr int64_t kOwnBytes = 640;

}  // namespace

Sequence::Sequence(const SequenceForm& form,
                   const std::shared_ptr<PageBudget>& budget, Reservation own)
    : form_(form), layout_(form), budget_(budget), own_(std::move(own)) {
  for (int64_t i = 0; i < form.layers; ++i) {
    layers_.emplace_back(layout_, budget_);
  }
}

int64_t Sequence::OwnBytes(const SequenceForm& form,
                           absl::Span<const int64_t> lengths) {
  int64_t bytes =
      kOwnBytes + form.layers * static_cast<int64_t>(sizeof(PageList));
  for (const int64_t length : lengths) {
    if (length > 0) bytes += PageTable::CountedBytes(PagesOf(length));
  }
  return bytes;
}

int64_t Sequence::BytesOf(const SequenceForm& form,
                          absl::Span<const int64_t> lengths,
                          int64_t more_bytes) {
  const int64_t counted = Page::CountedBytes(PageLayout(form).page_bytes());
  int64_t bytes = OwnBytes(form, lengths) + more_bytes;
  for (const int64_t length : lengths) {
    const int64_t pages = PagesOf(length);
    if (pages > (PageBudget::kUnlimited - bytes) / counted) {
      return PageBudget::kUnlimited;
    }
    bytes += pages * counted;
  }
  return bytes;
}

absl::StatusOr<std::shared_ptr<Sequence>> Sequence::Create(
    const SequenceForm& form, const std::shared_ptr<PageBudget>& budget,
    int64_t more_bytes, absl::Span<const int64_t> lengths) {
  absl::Status status = CheckForm(form);
  if (!status.ok()) return status;
  const int64_t bytes = OwnBytes(form) + more_bytes;
  if (!budget->Reserve(bytes, 0)) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "no memory for a sequence of ", bytes, " bytes: the limit is reached"));
  }
  Reservation own(budget, bytes);
  std::shared_ptr<Sequence> made;
  try {
    made.reset(new Sequence(form, budget, std::move(own)));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory for a sequence");
  }
  for (size_t layer = 0; layer < lengths.size(); ++layer) {
    status = made->layers_[layer].MakePlaces(lengths[layer]);
    if (!status.ok()) return status;
  }
  return made;
}

absl::Status Sequence::CheckLayer(int64_t layer) const {
  if (layer >= 0 && layer < form_.layers) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "layer: ", layer, " (expected: 0 to ", form_.layers - 1, ")"));
}

absl::Status Sequence::CheckLength(int64_t length, int64_t there) const {
  if (length < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("length: ", length, " (expected: 0 or more)"));
  }
  if (length <= there) return absl::OkStatus();
  return absl::OutOfRangeError(absl::StrCat("length: ", length, ", there are ",
                                            there, " keys (expected: ", there,
                                            " or less)"));
}

absl::StatusOr<Appended> Sequence::Append(int64_t layer,
                                          std::optional<int64_t> position,
                                          const KeyValueBlock& rows) {
  absl::Status status = CheckLayer(layer);
  if (!status.ok()) return status;
  return layers_[static_cast<size_t>(layer)].Append(position, rows);
}

bool Sequence::IsChanging(int64_t layer) const {
  return CheckLayer(layer).ok() &&
         layers_[static_cast<size_t>(layer)].IsChanging();
}

absl::StatusOr<Snapshot> Sequence::TakeSnapshot(int64_t layer) const {
  absl::Status status = CheckLayer(layer);
  if (!status.ok()) return status;
  return layers_[static_cast<size_t>(layer)].TakeSnapshot();
}

absl::StatusOr<std::vector<Snapshot>> Sequence::TakeSnapshots() const {
  std::vector<Snapshot> snapshots;
  snapshots.reserve(layers_.size());
  for (const PageList& layer : layers_) {
    absl::StatusOr<Snapshot> snapshot = layer.TakeSnapshot();
    if (!snapshot.ok()) return snapshot.status();
    snapshots.push_back(*std::move(snapshot));
  }
  return snapshots;
}

absl::Status Sequence::CheckLengths(std::optional<int64_t> length) const {
  for (const PageList& layer : layers_) {
    const absl::StatusOr<Snapshot> now = layer.TakeSnapshot();
    if (!now.ok()) return now.status();
    if (!length) continue;
    absl::Status status = CheckLength(*length, now->length());
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status Sequence::Truncate(int64_t length) {
  absl::Status status = CheckLengths(length);
  if (!status.ok()) return status;
  for (PageList& layer : layers_) {
    status = layer.Truncate(length);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<Sequence>> Sequence::Fork(
    std::optional<int64_t> length, int64_t more_bytes) const {
  // Before memory: nobody is to make room for what cannot be.
  absl::Status status = CheckLengths(length);
  if (!status.ok()) return status;
  absl::StatusOr<std::shared_ptr<Sequence>> fork =
      Create(form_, budget_, more_bytes);
  if (!fork.ok()) return fork;
  auto layer = (*fork)->layers_.begin();
  for (const PageList& own : layers_) {
    const absl::StatusOr<Snapshot> now = own.TakeSnapshot();
    if (!now.ok()) return now.status();
    const int64_t wanted = length.value_or(now->length());
    status = CheckLength(wanted, now->length());
    if (status.ok()) status = layer->Share(*now, wanted);
    if (!status.ok()) return status;
    ++layer;
  }
  return fork;
}

std::vector<int64_t> Sequence::Lengths() const {
  std::vector<int64_t> lengths;
  lengths.reserve(layers_.size());
  for (const PageList& layer : layers_) lengths.push_back(layer.length());
  return lengths;
}

int64_t Sequence::Pages() const {
  int64_t pages = 0;
  for (const PageList& layer : layers_) pages += PagesOf(layer.length());
  return pages;
}

int64_t Sequence::PageBytes() const {
  return Pages() * Page::CountedBytes(layout_.page_bytes());
}

int64_t Sequence::LeastBytes() const {
  int64_t bytes = own_.bytes() + PageBytes();
  for (const PageList& layer : layers_) bytes += layer.table_bytes();
  return bytes;
}

int64_t Sequence::LeastBytesWith(int64_t layer, std::optional<int64_t> position,
                                 int64_t keys) const {
  const int64_t held = LeastBytes();
  const int64_t more = GrowthWith(layer, position, keys, /*alone=*/true).bytes;
  return more > PageBudget::kUnlimited - held ? PageBudget::kUnlimited
                                              : held + more;
}

int64_t Sequence::LeastBytesWithFork(std::optional<int64_t> length) const {
  return LeastBytes() + GrowthOfFork(length).bytes;
}

Growth Sequence::GrowthWith(int64_t layer, std::optional<int64_t> position,
                            int64_t keys, bool alone) const {
  if (!CheckLayer(layer).ok()) return {};
  return layers_[static_cast<size_t>(layer)].GrowthWith(position, keys, alone);
}

Growth Sequence::GrowthOfFork(std::optional<int64_t> length) const {
  Growth growth{OwnBytes(form_)};
  for (const PageList& layer : layers_) {
    const int64_t pages = PagesOf(length.value_or(layer.length()));
    if (pages > 0) growth.bytes += PageTable::CountedBytes(pages);
  }
  return growth;
}

void Sequence::AddTo(GivenBack& given) const {
  given.AddOwn(own_.bytes());
  for (const PageList& layer : layers_) layer.AddTo(given);
}

void Sequence::Close(const absl::Status& reason) {
  for (PageList& layer : layers_) layer.Close(reason);
}

}  // namespace attention::store
