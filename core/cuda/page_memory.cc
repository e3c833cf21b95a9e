#include "core/cuda/page_memory.h"

#include <algorithm>
#include <utility>

namespace attention::cuda {
namespace {

// A piece is a small part of the limit, so that pages of several sizes have
// some, and large enough that there are never many.
constexpr int64_t kPiecesOfLimit = 64;
constexpr int64_t kLeastPieceBytes = int64_t{1} << 20;
constexpr int64_t kMostPieceBytes = int64_t{16} << 20;

}  // namespace

std::optional<PageMemory::Place> PageMemory::Take(int64_t bytes) {
  OfSize& of = sizes_[bytes];
  if (of.open.empty() && !AddPiece(bytes, of.open)) return std::nullopt;
  const auto piece = of.open.begin();
  const Place place = {.data = piece->free.back(), .piece = piece};
  piece->free.pop_back();
  if (piece->free.empty()) of.full.splice(of.full.begin(), of.open, piece);
  return place;
}

std::optional<int64_t> PageMemory::PieceBytes(int64_t place_bytes) const {
  const int64_t wanted =
      std::clamp(limit() / kPiecesOfLimit, kLeastPieceBytes, kMostPieceBytes);
  const int64_t bytes = MemoryPool::InGranules(
      std::max<int64_t>(1, wanted / place_bytes) * place_bytes);
  if (bytes_ + bytes > limit()) return std::nullopt;
  return bytes;
}

bool PageMemory::AddPiece(int64_t place_bytes, Pieces& open) {
  const std::optional<int64_t> bytes = PieceBytes(place_bytes);
  if (!bytes) return false;
  std::optional<MemoryPool::Block> memory = pool_.TryTake(*bytes);
  if (!memory) return false;
  bytes_ += memory->bytes();
  const int64_t places = *bytes / place_bytes;
  Piece piece = {.memory = *std::move(memory),
                 .place_bytes = place_bytes,
                 .places = static_cast<size_t>(places),
                 .free = {}};
  for (int64_t n = places - 1; n >= 0; --n) {  // the first one is given first
    piece.free.push_back(piece.memory.data() + n * place_bytes);
  }
  open.push_front(std::move(piece));
  return true;
}

bool PageMemory::Free(const Place& place) {
  const auto piece = place.piece;
  OfSize& of = sizes_.find(piece->place_bytes)->second;
  if (piece->free.empty()) of.open.splice(of.open.end(), of.full, piece);
  piece->free.push_back(place.data);
  if (piece->free.size() < piece->places) return false;
  bytes_ -= piece->memory.bytes();
  of.open.erase(piece);
  return true;
}

}  // namespace attention::cuda
