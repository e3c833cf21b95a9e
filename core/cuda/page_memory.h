#ifndef ATTENTION_CORE_CUDA_PAGE_MEMORY_H_
#define ATTENTION_CORE_CUDA_PAGE_MEMORY_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <vector>

#include "core/cuda/memory_pool.h"

namespace attention::cuda {

/// Places for pages in a device's memory: pieces of its pool, each cut into
/// places of one size. An allocation for each page would cost more than
/// bringing it, and freeing one would stop the device. Not safe for several
/// threads at once.
class PageMemory {
  struct Piece {
    MemoryPool::Block memory;
    int64_t place_bytes;
    size_t places;
    std::vector<std::byte*> free;
  };
  using Pieces = std::list<Piece>;

 public:
  struct Place {
    std::byte* data = nullptr;
    Pieces::iterator piece = {};
  };

  explicit PageMemory(MemoryPool& pool) : pool_(pool) {}

  /// Pages take at most one half of the pool, so that a job which needs no more
  /// than the other half never waits for who holds pages.
  static constexpr int64_t kShareOfPool = 2;
  /// Bytes; 0 before the pool knows its own.
  int64_t limit() const { return pool_.limit().value_or(0) / kShareOfPool; }
  /// Bytes that were taken of the pool, free places included.
  int64_t bytes() const { return bytes_; }

  /// A place of `bytes`, a multiple of 256 above 0, aligned to 256. Nothing
  /// where the limit is reached or the pool has no more.
  std::optional<Place> Take(int64_t bytes);
  /// Bytes of the pool that Take() needs where it has no free place, as the
  /// pool counts them; nothing where the limit does not allow them.
  std::optional<int64_t> PieceBytes(int64_t place_bytes) const;
  /// A place is free again. True where a piece went back to the pool.
  bool Free(const Place& place);

 private:
  struct OfSize {
    Pieces open;  // with free places
    Pieces full;
  };

  bool AddPiece(int64_t place_bytes, Pieces& open);

  MemoryPool& pool_;
  std::map<int64_t, OfSize> sizes_;  // by bytes of a place
  int64_t bytes_ = 0;
};

}  // namespace attention::cuda

#endif  // ATTENTION_CORE_CUDA_PAGE_MEMORY_H_
