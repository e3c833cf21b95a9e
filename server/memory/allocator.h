#ifndef ATTENTION_SERVER_MEMORY_ALLOCATOR_H_
#define ATTENTION_SERVER_MEMORY_ALLOCATOR_H_

#include <cstdint>

namespace attention::server {

/// Freed memory is kept for the next requests and counts towards no limit: a
/// server that is to stay within few `memory_limit` bytes (less than 4 GiB)
/// gives it back to the system at once, unless MALLOC_CONF says how long to
/// keep it. Otherwise large blocks are kept for up to two seconds. Does nothing
/// where the process has another allocator than jemalloc.
void KeepFreedMemoryWithin(int64_t memory_limit);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_MEMORY_ALLOCATOR_H_
