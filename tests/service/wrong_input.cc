#include "tests/service/wrong_input.h"

#include <gmock/gmock.h>

namespace attention::test {

void ExpectRefusal(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& message) {
  EXPECT_EQ(status.code(), code) << status;
  const std::string text(status.message());
  for (size_t i = 0; i < message.size(); ++i) {
    if (i == 0) {
      EXPECT_THAT(text, testing::StartsWith(message[i]));
    } else {
      EXPECT_THAT(text, testing::HasSubstr(message[i]));
    }
  }
}

}  // namespace attention::test
