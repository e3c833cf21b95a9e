#ifndef ATTENTION_TESTS_FUZZ_SLICE_CUTS_H_
#define ATTENTION_TESTS_FUZZ_SLICE_CUTS_H_

#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace attention::test {

/// A message's bytes in slices. The cuts follow from the bytes, so that an
/// input alone reproduces a finding; empty slices are among them.
inline std::vector<grpc::Slice> CutIntoSlices(const uint8_t* data,
                                              size_t size) {
  std::vector<grpc::Slice> slices;
  uint32_t state = static_cast<uint32_t>(size);
  for (size_t begin = 0; begin < size;) {
    state = (state + data[begin]) * 1664525u + 1013904223u;
    const size_t length = std::min<size_t>((state >> 20) % 40, size - begin);
    slices.emplace_back(data + begin, length);
    begin += length;
  }
  return slices;
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_FUZZ_SLICE_CUTS_H_
