#include "core/cuda/emulation/race_check.h"

#include <cstdio>
#include <cstdlib>
#include <limits>

namespace attention::cuda::emulation {
namespace {

constexpr int16_t kNobody = -1;
constexpr int16_t kSeveral = -2;
// In place of a phase's number: a copy is under way.
constexpr uint64_t kCopied = std::numeric_limits<uint64_t>::max();

[[noreturn]] void Report(int64_t offset, int thread, const char* does,
                         int16_t other, const char* did) {
  char who[32] = "threads";
  if (other != kSeveral) std::snprintf(who, sizeof(who), "thread %d", other);
  std::fprintf(stderr,
               "a race: thread %d %s byte %lld of shared memory, which %s %s "
               "and no SyncBlock() lies between\n",
               thread, does, static_cast<long long>(offset), who, did);
  std::abort();
}

bool IsAnother(int16_t known, int thread) {
  return known != kNobody && known != thread;
}

}  // namespace

void Forbid(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::abort();
}

void RaceCheck::Begin(int64_t bytes) {
  bytes_.assign(static_cast<size_t>(bytes), {0, kNobody, kNobody});
}

void RaceCheck::Read(int64_t offset, int64_t bytes, int thread,
                     uint64_t phase) {
  const auto reader = static_cast<int16_t>(thread);
  for (Byte* byte = At(offset); byte != At(offset + bytes); ++byte) {
    if (byte->phase == kCopied) {
      Report(byte - At(0), thread, "reads", byte->writer, "has copied to");
    }
    if (byte->phase != phase) {
      *byte = {phase, kNobody, reader};
      continue;
    }
    if (IsAnother(byte->writer, thread)) {
      Report(byte - At(0), thread, "reads", byte->writer, "wrote");
    }
    byte->reader = IsAnother(byte->reader, thread) ? kSeveral : reader;
  }
}

void RaceCheck::Write(int64_t offset, int64_t bytes, int thread,
                      uint64_t phase) {
  const auto writer = static_cast<int16_t>(thread);
  for (Byte* byte = At(offset); byte != At(offset + bytes); ++byte) {
    if (byte->phase == kCopied) {
      Report(byte - At(0), thread, "writes", byte->writer, "has copied to");
    }
    if (byte->phase != phase) *byte = {phase, writer, kNobody};
    if (IsAnother(byte->writer, thread)) {
      Report(byte - At(0), thread, "writes", byte->writer, "wrote");
    }
    if (IsAnother(byte->reader, thread)) {
      Report(byte - At(0), thread, "writes", byte->reader, "read");
    }
    byte->writer = writer;
  }
}

void RaceCheck::BeginCopy(int64_t offset, int64_t bytes, int thread,
                          uint64_t phase) {
  Write(offset, bytes, thread, phase);
  for (int64_t at = offset; at < offset + bytes; ++at) {
    At(at)->phase = kCopied;
  }
}

void RaceCheck::EndCopy(int64_t offset, int64_t bytes, int thread,
                        uint64_t phase) {
  for (int64_t at = offset; at < offset + bytes; ++at) {
    *At(at) = {phase, static_cast<int16_t>(thread), kNobody};
  }
}

}  // namespace attention::cuda::emulation
