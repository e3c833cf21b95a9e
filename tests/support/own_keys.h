#ifndef ATTENTION_TESTS_SUPPORT_OWN_KEYS_H_
#define ATTENTION_TESTS_SUPPORT_OWN_KEYS_H_

#include <cstdint>

#include "core/problem.h"

namespace attention::test {

/// The same problem, of any rank or packed, each entry with its own keys: views
/// of those that all have, in as many blocks. Those of a packed batch are in
/// pages of `page` keys, 0 for one piece.
AttentionProblem WithOwnKeys(const AttentionProblem& whole, int64_t page = 0);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_OWN_KEYS_H_
