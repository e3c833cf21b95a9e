#ifndef ATTENTION_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define ATTENTION_TESTS_SUPPORT_STATUS_MATCHERS_H_

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

/// Matchers for absl::Status and absl::StatusOr.
namespace attention::test {

inline absl::Status StatusOf(const absl::Status& status) { return status; }
template <typename T>
const absl::Status& StatusOf(const absl::StatusOr<T>& result) {
  return result.status();
}

/// EXPECT_THAT(result, IsOk()): prints the status otherwise.
MATCHER(IsOk, "is OK") {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

/// EXPECT_THAT(result, StatusIs(code, HasSubstr("sigma"))): a code, and a
/// matcher for the message.
MATCHER_P2(StatusIs, code, message,
           std::string("has the code ") + absl::StatusCodeToString(code)) {
  *result_listener << "whose status is " << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::ExplainMatchResult(
             message, absl::StrCat(StatusOf(arg).message()), result_listener);
}

}  // namespace attention::test

#define ATTENTION_CONCAT_(a, b) a##b
#define ATTENTION_CONCAT(a, b) ATTENTION_CONCAT_(a, b)

// The arguments are a name and a declaration: neither stands in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define ATTENTION_ASSERT_OK_AND_ASSIGN_(result, target, expression) \
  auto result = (expression);                                       \
  ASSERT_THAT(result, ::attention::test::IsOk());                   \
  target = *std::move(result)
// NOLINTEND(bugprone-macro-parentheses)

/// ASSERT_OK_AND_ASSIGN(Tensor tensor, Tensor::Create(...)): ends the test
/// where the StatusOr holds an error.
#define ASSERT_OK_AND_ASSIGN(target, expression)                          \
  ATTENTION_ASSERT_OK_AND_ASSIGN_(ATTENTION_CONCAT(status_or_, __LINE__), \
                                  target, expression)

#endif  // ATTENTION_TESTS_SUPPORT_STATUS_MATCHERS_H_
