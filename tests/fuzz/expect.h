#ifndef ATTENTION_TESTS_FUZZ_EXPECT_H_
#define ATTENTION_TESTS_FUZZ_EXPECT_H_

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "core/tensor.h"

namespace attention {

/// Ends the run with `what`, which libFuzzer reports together with the input.
inline void Expect(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "broken: %s\n", what);
  std::abort();
}

/// Type, shape and every byte are the same.
inline bool SameTensor(const Tensor& a, const Tensor& b) {
  const auto left = a.bytes();
  const auto right = b.bytes();
  return a.type() == b.type() && a.shape() == b.shape() &&
         std::equal(left.begin(), left.end(), right.begin(), right.end());
}

}  // namespace attention

#endif  // ATTENTION_TESTS_FUZZ_EXPECT_H_
