#include "server/telemetry/backend_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <string>

#include "core/reference/reference_backend.h"

namespace attention::server {
namespace {

// Keeps what it is told of the server as a whole.
class RecordingService final : public grpc::HealthCheckServiceInterface {
 public:
  void SetServingStatus(const std::string&, bool) override {}
  void SetServingStatus(bool serving) override { serving_ = serving; }

  std::optional<bool> serving() const { return serving_; }

 private:
  std::optional<bool> serving_;
};

class BackendHealthTest : public ::testing::Test {
 protected:
  void Note(bool serving) {
    health_.Note(*backend_, absl::UnavailableError("the device is lost"),
                 serving);
  }

  const std::unique_ptr<Backend> backend_ = MakeReferenceBackend();
  RecordingService service_;
  BackendHealth health_;
};

TEST_F(BackendHealthTest, SaysNothingWhileAnotherBackendIsLeft) {
  health_.Attach(&service_);
  Note(/*serving=*/true);
  EXPECT_EQ(service_.serving(), std::nullopt);
  EXPECT_TRUE(health_.serving());
}

TEST_F(BackendHealthTest, IsNotServingOnceNoBackendIsLeft) {
  health_.Attach(&service_);
  Note(/*serving=*/false);
  EXPECT_EQ(service_.serving(), false);
  EXPECT_FALSE(health_.serving());
}

TEST_F(BackendHealthTest, TellsAServiceThatComesLater) {
  Note(/*serving=*/false);
  health_.Attach(&service_);
  EXPECT_EQ(service_.serving(), false);
}

TEST_F(BackendHealthTest, LeavesAServiceAloneThatIsGone) {
  health_.Attach(&service_);
  health_.Attach(nullptr);
  Note(/*serving=*/false);
  EXPECT_EQ(service_.serving(), std::nullopt);
}

}  // namespace
}  // namespace attention::server
