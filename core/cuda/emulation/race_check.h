#ifndef ATTENTION_CORE_CUDA_EMULATION_RACE_CHECK_H_
#define ATTENTION_CORE_CUDA_EMULATION_RACE_CHECK_H_

#include <cstdint>
#include <vector>

namespace attention::cuda::emulation {

/// Ends the process: a kernel does what a device does not allow.
[[noreturn]] void Forbid(const char* what);

/// Which threads of a block have touched the bytes of its shared memory. Two of
/// them race for a byte where one writes and they have not met in between; the
/// emulation, which runs one thread after the other, would not show it. Only
/// points at which the whole block meets count: shuffles order no memory.
///
/// Offsets are from the beginning of shared memory, of bytes within it;
/// `phase` is the number of times that the block has met. A race ends the
/// process.
class RaceCheck {
 public:
  /// For a block that has `bytes` of shared memory.
  void Begin(int64_t bytes);

  void Read(int64_t offset, int64_t bytes, int thread, uint64_t phase);
  void Write(int64_t offset, int64_t bytes, int thread, uint64_t phase);

  /// Around an asynchronous copy, while which nobody may touch the bytes.
  void BeginCopy(int64_t offset, int64_t bytes, int thread, uint64_t phase);
  void EndCopy(int64_t offset, int64_t bytes, int thread, uint64_t phase);

 private:
  struct Byte {
    uint64_t phase;  // what the next two are about
    int16_t writer;
    int16_t reader;
  };

  Byte* At(int64_t offset) { return bytes_.data() + offset; }

  std::vector<Byte> bytes_;
};

}  // namespace attention::cuda::emulation

#endif  // ATTENTION_CORE_CUDA_EMULATION_RACE_CHECK_H_
