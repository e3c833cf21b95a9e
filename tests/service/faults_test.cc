// attention-server where an allocation or a thread fails that could be had a
// moment before, at its start and later: what cannot be provoked from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tests/service/faulty_server.h"
#include "tests/service/large_requests.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/wire_client.h"
#include "tests/support/faults/planned_faults.h"

namespace attention::test {
namespace {

using ::testing::HasSubstr;

constexpr int64_t kForEver = std::numeric_limits<int64_t>::max();

// What attention-server does of which all threads, or all large allocations,
// fail after the first `skip`.
struct Started {
  bool serves = false;
  int64_t failed = 0;
  int code = 0;
  std::string text;
};

Started StartWith(Faults FaultPlan::*kind, int skip) {
  PlannedFaults faults;
  faults.plan().large_bytes = kLarge;
  (faults.plan().*kind).skip = skip;
  (faults.plan().*kind).fail = kForEver;
  const RunningServer server = Launch({}, faults.BeforeProgram());
  Started started;
  started.serves = !server.address.empty();
  if (started.serves) {
    WireClient client(server.address);
    ExpectGoodReply(client.Attend(GoodRequest()));
  } else {
    started.text = server.process->ReadAll();
    started.code = server.process->Wait();
  }
  started.failed = (faults.plan().*kind).failed;
  return started;
}

class StartTest : public testing::TestWithParam<Faults FaultPlan::*> {};

TEST_P(StartTest, ServesOrSaysWhyNotAndEndsWithExitCodeOne) {
  constexpr int kMost = 200;
  int ended = 0;
  for (int skip = 0; skip < kMost; ++skip) {
    SCOPED_TRACE(absl::StrCat("all fail after ", skip));
    const Started started = StartWith(GetParam(), skip);
    if (!started.serves) {
      ++ended;
      EXPECT_EQ(started.code, 1) << started.text;
      EXPECT_THAT(started.text, HasSubstr("attention-server: "));
    }
    if (started.failed == 0 || HasFailure()) break;
    ASSERT_LT(skip + 1, kMost);
  }
  EXPECT_GT(ended, 0);
}

INSTANTIATE_TEST_SUITE_P(Where, StartTest,
                         testing::Values(&FaultPlan::threads,
                                         &FaultPlan::large_allocations),
                         [](const auto& kind) {
                           return kind.param == &FaultPlan::threads
                                      ? "NoThread"
                                      : "NoMemory";
                         });

using NoThreadTest = FaultyServerTest;

// All that it needs of its own it has made at its start.
TEST_F(NoThreadTest, NewConnectionsAreServedAndItEndsAsItShould) {
  ASSERT_NO_FATAL_FAILURE(Start());
  plan().spare_grpc = 1;
  plan().threads.fail = kForEver;
  std::vector<std::unique_ptr<WireClient>> clients;
  std::vector<std::unique_ptr<PendingCall>> calls;
  constexpr int kClients = 24;
  const std::string message = GoodRequest().SerializeAsString();
  for (int i = 0; i < kClients; ++i) {
    clients.push_back(std::make_unique<WireClient>(server_.address));
    calls.push_back(clients.back()->Start(kAttend, message));
  }
  for (const auto& call : calls) EXPECT_TRUE(call->Wait().ok());
  EXPECT_EQ(AskOverHttp(server_), absl::OkStatus());
  EXPECT_EQ(AskOnAStream(*clients.front()), absl::OkStatus());
  EXPECT_GT(plan().threads.failed.load(), 0);
  EXPECT_THAT(server_.process->ReadLineWith("new connections get no thread"),
              HasSubstr("Resource temporarily unavailable"));
  server_.process->Signal(SIGTERM);
  EXPECT_EQ(server_.process->Wait(), 0);
}

using NoMemoryTest = FaultyServerTest;

// gRPC does not look whether it got what it reads into.
TEST_F(NoMemoryTest, InALibraryThatDoesNotLookIsNamedAtTheEnd) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ExpectGoodReply(client_->Attend(GoodRequest()));
  plan().large_bytes = 64 << 10;
  plan().large_allocations.fail = 1;
  // Long enough that gRPC reads it in large pieces.
  v1::AttendRequest request = GoodRequest();
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {1 << 22, 1}, 1);
  EXPECT_EQ(client_->Attend(request).status().code(),
            absl::StatusCode::kUnavailable);
  EXPECT_EQ(server_.process->Wait(), -SIGSEGV);
  EXPECT_THAT(
      server_.process->ReadAll(),
      HasSubstr("attention-server: a null pointer was used, there is no "
                "memory to be had"));
}

}  // namespace
}  // namespace attention::test
