#include "core/cuda/transfer.h"

#include <algorithm>
#include <cstring>

namespace attention::cuda {
namespace {

constexpr int64_t kPieceAlignment = 16;

template <typename Word>
void Gather(const std::byte* data, int64_t count, int64_t stride,
            std::byte* to) {
  for (int64_t n = 0; n < count; ++n) {
    std::memcpy(to + n * int64_t{sizeof(Word)}, data + n * stride,
                sizeof(Word));
  }
}

void Gather(const std::byte* data, int64_t count, int64_t stride, int64_t size,
            std::byte* to) {
  switch (size) {
    case 1:
      return Gather<uint8_t>(data, count, stride, to);
    case 2:
      return Gather<uint16_t>(data, count, stride, to);
    case 4:
      return Gather<uint32_t>(data, count, stride, to);
    case 8:
      return Gather<uint64_t>(data, count, stride, to);
    default:
      break;
  }
  for (int64_t n = 0; n < count; ++n) {
    std::memcpy(to + n * size, data + n * stride, static_cast<size_t>(size));
  }
}

int64_t BytesFrom(const TensorView& view, size_t extent) {
  int64_t bytes = ByteSize(view.type);
  for (size_t n = extent; n < view.shape.size(); ++n) bytes *= view.shape[n];
  return bytes;
}

}  // namespace

void Uploader::Begin(std::byte* to) {
  Flush();
  to_ = to;
  end_ = (end_ + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  begin_ = end_;
}

void Uploader::BeginNext(std::byte* to) {
  const int64_t pending = end_ - begin_;
  const int64_t padding = reinterpret_cast<intptr_t>(to) -
                          reinterpret_cast<intptr_t>(to_) - pending;
  if (pending == 0 || padding < 0 || padding >= kMostPadding ||
      end_ + padding > Stream::kBufferBytes) {
    Begin(to);
    return;
  }
  std::memset(Place(), 0, static_cast<size_t>(padding));
  end_ += padding;
}

void Uploader::Flush() {
  if (!status_.ok() || end_ == begin_) return;
  status_ = stream_.Upload(index_, begin_, to_, end_ - begin_);
  to_ += end_ - begin_;
  begin_ = end_;
}

int64_t Uploader::Room(int64_t bytes, int64_t unit) {
  if (end_ + unit > Stream::kBufferBytes) {
    Flush();
    if (status_.ok()) status_ = stream_.Mark(index_);
    index_ = (index_ + 1) % Stream::kBuffers;
    if (status_.ok()) status_ = stream_.Wait(index_);
    begin_ = end_ = 0;
  }
  if (!status_.ok()) return 0;
  const int64_t room = (Stream::kBufferBytes - end_) / unit * unit;
  return std::min(bytes, room);
}

void Uploader::Append(const void* data, int64_t bytes) {
  const auto* from = static_cast<const std::byte*>(data);
  if (bytes >= kLeastPinnedCopy && stream_.Reaches(from, bytes)) {
    Flush();
    if (status_.ok()) status_ = stream_.UploadPinned(from, to_, bytes);
    to_ += bytes;
    return;
  }
  while (bytes > 0) {
    const int64_t piece = Room(bytes, 1);
    if (piece == 0) return;
    std::byte* const place = Place();
    Share(piece, 1, [&](int64_t first, int64_t count) {
      std::memcpy(place + first, from + first, static_cast<size_t>(count));
    });
    from += piece;
    end_ += piece;
    bytes -= piece;
  }
}

void Uploader::AppendStrided(const std::byte* data, int64_t count,
                             int64_t stride, int64_t size) {
  while (count > 0) {
    const int64_t piece = Room(count * size, size) / size;
    if (piece == 0) return;
    std::byte* const place = Place();
    Share(piece, size, [&](int64_t first, int64_t some) {
      Gather(data + first * stride, some, stride, size, place + first * size);
    });
    data += piece * stride;
    end_ += piece * size;
    count -= piece;
  }
}

void Uploader::Share(
    int64_t count, int64_t size,
    absl::FunctionRef<void(int64_t first, int64_t count)> fill) const {
  if (workers_ == nullptr || count * size < kLeastShared) {
    return fill(0, count);
  }
  const int64_t each = kSharedPiece / size;
  workers_->ParallelFor((count + each - 1) / each, {}, [&](int64_t n) {
    fill(n * each, std::min(each, count - n * each));
  });
}

void Uploader::AppendFrom(const TensorView& view, size_t extent,
                          const std::byte* data) {
  if (!status_.ok()) return;
  if (IsRowMajor(view, extent)) {
    Append(data, BytesFrom(view, extent));
  } else if (const int64_t row = BytesFrom(view, extent + 1);
             row < kLeastPinnedCopy && IsRowMajor(view, extent + 1)) {
    AppendStrided(data, view.shape[extent], view.strides[extent], row);
  } else {
    for (int64_t n = 0; n < view.shape[extent]; ++n) {
      AppendFrom(view, extent + 1, data + n * view.strides[extent]);
    }
  }
}

void Uploader::AppendView(const TensorView& view) {
  if (BytesFrom(view, 0) == 0) return;
  AppendFrom(view, 0, view.data);
}

absl::Status Uploader::Finish() {
  Flush();
  return status_;
}

void Downloader::Begin(const std::byte* from) {
  const int64_t padding = reinterpret_cast<intptr_t>(from) -
                          reinterpret_cast<intptr_t>(from_) - (end_ - begin_);
  const bool goes_on = end_ > begin_ && padding >= 0 &&
                       padding < kMostPadding &&
                       end_ + padding < Stream::kBufferBytes;
  if (goes_on) {
    end_ += padding;
    return;
  }
  Flush();
  end_ = (end_ + kPieceAlignment - 1) / kPieceAlignment * kPieceAlignment;
  if (end_ == Stream::kBufferBytes) Turn();
  begin_ = end_;
  from_ = from;
}

void Downloader::Flush() {
  if (!status_.ok() || end_ == begin_) return;
  status_ = stream_.Download(index_, begin_, from_, end_ - begin_);
  begin_ = end_;
}

void Downloader::Turn() {
  Flush();
  if (status_.ok()) status_ = stream_.Mark(index_);
  index_ = (index_ + 1) % Stream::kBuffers;
  Empty(index_);
  begin_ = end_ = 0;
}

void Downloader::Empty(int index) {
  std::vector<Piece>& pieces = pieces_[static_cast<size_t>(index)];
  if (!pieces.empty() && status_.ok()) status_ = stream_.Wait(index);
  for (const Piece& piece : pieces) {
    if (!status_.ok()) break;
    std::memcpy(piece.to, stream_.buffer(index) + piece.offset,
                static_cast<size_t>(piece.bytes));
  }
  pieces.clear();
}

void Downloader::Copy(const std::byte* from, std::byte* to, int64_t bytes) {
  if (status_.ok() && bytes >= kLeastPinnedCopy && stream_.Reaches(to, bytes)) {
    status_ = stream_.DownloadPinned(from, to, bytes);
    return;
  }
  while (bytes > 0 && status_.ok()) {
    Begin(from);
    if (!status_.ok()) return;
    const int64_t piece = std::min(bytes, Stream::kBufferBytes - end_);
    pieces_[static_cast<size_t>(index_)].push_back({to, end_, piece});
    end_ += piece;
    from += piece;
    to += piece;
    bytes -= piece;
  }
}

absl::Status Downloader::Finish() {
  for (int n = 0; n < Stream::kBuffers; ++n) Turn();
  return status_;
}

}  // namespace attention::cuda
