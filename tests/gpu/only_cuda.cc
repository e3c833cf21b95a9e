// Linked into a test program, this makes the CUDA devices of this machine what
// it tests. Where there are none, every test is skipped, with the loader's
// reason.

#include <string>

#include "core/cuda/loader.h"
#include "gtest/gtest.h"
#include "tests/support/results.h"

namespace attention::test {
namespace {

class NeedsDevice final : public ::testing::Environment {
 public:
  void SetUp() override {
    const absl::Status status = cuda::OpenDevices().status();
    if (!status.ok()) {
      GTEST_SKIP() << static_cast<std::string>(status.message());
    }
  }
};

[[maybe_unused]] const bool kOnlyCuda = UseBackend("cuda");
[[maybe_unused]] const ::testing::Environment* const kEnvironment =
    ::testing::AddGlobalTestEnvironment(new NeedsDevice());

}  // namespace
}  // namespace attention::test
