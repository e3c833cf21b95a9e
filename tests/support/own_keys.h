#ifndef ATTENTION_TESTS_SUPPORT_OWN_KEYS_H_
#define ATTENTION_TESTS_SUPPORT_OWN_KEYS_H_

#include "core/problem.h"

namespace attention::test {

/// The same problem, of any rank or packed, each entry with its own keys: views
/// of those that all have, in as many blocks.
AttentionProblem WithOwnKeys(const AttentionProblem& whole);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_OWN_KEYS_H_
