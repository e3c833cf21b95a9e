// Which calls about sequences a client makes again: those that do no harm.
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.grpc.pb.h"
#include "attention_client/client.h"
#include "tests/client/scripted_service.h"
#include "tests/client/sequences_of_test.h"

namespace attention::client {
namespace {

constexpr int kAttempts = 3;

// A server that is never available, and counts who asks.
class AbsentStore final : public v1::KeyValueService::Service {
 public:
  AbsentStore() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // How often it was called since the last time.
  int TakeCalls() { return calls_.exchange(0); }

  grpc::Status Create(grpc::ServerContext*, const v1::CreateSequencesRequest*,
                      v1::CreateSequencesResponse*) override {
    return Refuse();
  }
  grpc::Status Append(grpc::ServerContext*, const v1::AppendRequest*,
                      v1::AppendResponse*) override {
    return Refuse();
  }
  grpc::Status Truncate(grpc::ServerContext*, const v1::TruncateRequest*,
                        v1::TruncateResponse*) override {
    return Refuse();
  }
  grpc::Status Fork(grpc::ServerContext*, const v1::ForkRequest*,
                    v1::ForkResponse*) override {
    return Refuse();
  }
  grpc::Status Describe(grpc::ServerContext*,
                        const v1::DescribeSequenceRequest*,
                        v1::SequenceDescription*) override {
    return Refuse();
  }
  grpc::Status List(grpc::ServerContext*, const v1::ListSequencesRequest*,
                    v1::ListSequencesResponse*) override {
    return Refuse();
  }
  grpc::Status Delete(grpc::ServerContext*, const v1::DeleteSequencesRequest*,
                      v1::DeleteSequencesResponse*) override {
    return Refuse();
  }
  grpc::Status Export(grpc::ServerContext*, const v1::ExportSequenceRequest*,
                      v1::ExportSequenceResponse*) override {
    return Refuse();
  }
  grpc::Status Import(grpc::ServerContext*, const v1::ImportSequenceRequest*,
                      v1::ImportSequenceResponse*) override {
    return Refuse();
  }

 private:
  grpc::Status Refuse() {
    ++calls_;
    return {grpc::StatusCode::UNAVAILABLE, "as told"};
  }

  std::atomic<int> calls_ = 0;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;  // last: it uses the others
};

TEST(SequencesRetryTest, WhatMayBeDoneTwiceIsTriedAgain) {
  AbsentStore store;
  const Client client = QuickClient(store.address(), kAttempts);
  const absl::Status statuses[] = {
      AppendSmall(client, {.name = "a", .position = 0}, 0, 1).status(),
      client.TruncateSequence("a", 0),
      client.DescribeSequence("a").status(),
      client.ListSequences().status(),
      client.DeleteSequences({"a"}).status(),
      client.ExportSequence("a", "a").status()};
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status, absl::UnavailableError("as told"));
  }
  EXPECT_EQ(store.TakeCalls(), kAttempts * 6);
}

TEST(SequencesRetryTest, WhatWouldBeThereTwiceIsNot) {
  AbsentStore store;
  const Client client = QuickClient(store.address(), kAttempts);
  const absl::Status statuses[] = {
      AppendSmall(client, {.name = "a"}, 0, 1).status(),
      client.CreateSequences({{.form = SmallForm()}}).status(),
      client.ForkSequence("a").status(),
      client.ImportSequence({.file = "a"}).status()};
  for (const absl::Status& status : statuses) {
    EXPECT_EQ(status, absl::UnavailableError("as told"));
  }
  EXPECT_EQ(store.TakeCalls(), 4);
}

// Attempts of a request at a service that answers none of them.
size_t Attempts(const AttendRequest& request) {
  const grpc::Status unavailable(grpc::StatusCode::UNAVAILABLE, "as told");
  ScriptedService service(std::vector<grpc::Status>(9, unavailable));
  EXPECT_EQ(QuickClient(service.address(), kAttempts).Attend(request).status(),
            absl::UnavailableError("as told"));
  return service.requests().size();
}

TEST(SequencesRetryTest, AStepIsTriedAgainWhereEveryEntryHasAPosition) {
  AttendRequest step = ReadRequest("a");
  EXPECT_EQ(Attempts(step), kAttempts);  // it appends nothing
  step.sequences->append = SmallBatch(0, 1);
  EXPECT_EQ(Attempts(step), 1);
  step.sequences->entries[0].position = 0;
  EXPECT_EQ(Attempts(step), kAttempts);
  step.sequences->entries.push_back({.name = "b"});
  EXPECT_EQ(Attempts(step), 1);
}

}  // namespace
}  // namespace attention::client
