#ifndef ATTENTION_TESTS_SERVICE_WRONG_INPUT_H_
#define ATTENTION_TESTS_SERVICE_WRONG_INPUT_H_

#include <gtest/gtest.h>

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/service/requests.h"

namespace attention::test {

/// A row of a table of requests that must be refused.
struct WrongInput {
  std::string name;
  /// What is done to GoodRequest().
  std::function<void(v1::AttendRequest&)> spoil;
  /// The message begins with the first and holds all the others.
  std::vector<std::string> message;
};

/// What GoogleTest prints of a row.
inline void PrintTo(const WrongInput& row, std::ostream* out) {
  *out << row.name;
}
inline std::string WrongInputName(
    const testing::TestParamInfo<WrongInput>& row) {
  return row.param.name;
}

/// Fails unless `status` has this code and a message that begins with the first
/// of `message` and holds the others.
void ExpectRefusal(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& message);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_WRONG_INPUT_H_
