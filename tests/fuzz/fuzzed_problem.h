#ifndef ATTENTION_TESTS_FUZZ_FUZZED_PROBLEM_H_
#define ATTENTION_TESTS_FUZZ_FUZZED_PROBLEM_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "tests/support/owned_problem.h"

namespace attention::test {

/// A problem made of bytes, small enough for thousands in a minute.
struct FuzzedProblem {
  OwnedProblem owned;
  std::vector<OwnedProblem> parts = {};  // memory of a packed batch's options
  uint8_t variant = 0;      // of the backend, modulo how many it has
  bool own_keys = false;    // to be asked as WithOwnKeys(), in such pages
  int64_t own_page = 0;     // of a packed batch's
  std::string description;  // for a person, a line per choice
};

/// Every byte is one choice, in this order; those that are missing are 0, so
/// that any bytes are a valid problem, none among them:
///   a level of each of the Factors() of tests/support/factors.h, modulo their
///   number; the variant; the seed of the numbers (2 bytes);
///   instead of the factor's where not 0: Lq, Lk (2 bytes, little-endian), Dq,
///   Dv, keys per block (of a packed batch, of those that its entries bring);
///   the hidden width (231 and more are widths of 200 to 5,000); scale, sigma
///   and softcap, each from a list; where not 0: batch; heads; results; top_k;
///   dropout; query_offset and key_offset; window_left and window_right; then
///   bits of what no factor has (Bits in more_options.cc) and of the extents
///   that repeat; modulo 8, the entries of a packed batch, 0 for a problem that
///   is none, and of each entry Lq and Lk, as shares of 255 of those above;
///   then, up to 8 times, one element that is replaced: which tensor, where (2
///   bytes), by what.
/// Extents are halved until a problem has no more than `most_work`
/// multiplications: what is computed in milliseconds.
FuzzedProblem ProblemOf(absl::Span<const uint8_t> bytes, int64_t most_work);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_FUZZ_FUZZED_PROBLEM_H_
