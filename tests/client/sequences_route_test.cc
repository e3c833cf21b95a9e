// What tells a proxy which server has a sequence.
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.grpc.pb.h"
#include "attention_client/client.h"
#include "tests/client/sequences_of_test.h"

namespace attention::client {
namespace {

// Knows every sequence, and how it was asked for.
class Store final : public v1::KeyValueService::Service {
 public:
  Store() {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  // The header of the last call; empty where it had none.
  std::string header() const { return header_; }

  grpc::Status Truncate(grpc::ServerContext* context,
                        const v1::TruncateRequest*,
                        v1::TruncateResponse*) override {
    return Note(*context);
  }
  grpc::Status Delete(grpc::ServerContext* context,
                      const v1::DeleteSequencesRequest*,
                      v1::DeleteSequencesResponse*) override {
    return Note(*context);
  }
  grpc::Status Append(grpc::ServerContext* context, const v1::AppendRequest*,
                      v1::AppendResponse*) override {
    return Note(*context);
  }
  grpc::Status List(grpc::ServerContext* context,
                    const v1::ListSequencesRequest*,
                    v1::ListSequencesResponse*) override {
    return Note(*context);
  }

 private:
  grpc::Status Note(const grpc::ServerContext& context) {
    const auto found = context.client_metadata().find("attention-sequence");
    const bool is_there = found != context.client_metadata().end();
    header_ = is_there
                  ? std::string(found->second.data(), found->second.length())
                  : std::string();
    return grpc::Status::OK;
  }

  std::string header_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;  // last: it uses the others
};

class SequencesRouteTest : public testing::Test {
 protected:
  Store store_;
  const Client client_ = *Client::Create({.target = store_.address()});
};

TEST_F(SequencesRouteTest, ACallHasTheNameOfItsSequence) {
  ASSERT_TRUE(client_.TruncateSequence("book", 0).ok());
  EXPECT_EQ(store_.header(), "book");
  ASSERT_TRUE(client_.DeleteSequences({"other", "book"}).ok());
  EXPECT_EQ(store_.header(), "other");
}

TEST_F(SequencesRouteTest, AForkNamedAfterItsSequenceIsFoundWithIt) {
  ASSERT_TRUE(client_.TruncateSequence("book/fork/1", 0).ok());
  EXPECT_EQ(store_.header(), "book");
}

TEST_F(SequencesRouteTest, AnAppendHasItToo) {
  ASSERT_TRUE(client_.AppendToSequence({.name = "book"}, SmallKeys(0, 1)).ok());
  EXPECT_EQ(store_.header(), "book");
}

TEST_F(SequencesRouteTest, OtherCallsHaveNone) {
  ASSERT_TRUE(client_.ListSequences().ok());
  EXPECT_EQ(store_.header(), "");
}

// gRPC ends a program that adds such a header.
TEST_F(SequencesRouteTest, WhatIsNoNameIsTheServersToRefuse) {
  for (const std::string name : {"", "a\nb", "\xc3\xa4", "/"}) {
    ASSERT_TRUE(client_.TruncateSequence(name, 0).ok());
    EXPECT_EQ(store_.header(), "");
  }
}

}  // namespace
}  // namespace attention::client
