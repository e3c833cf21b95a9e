#ifndef ATTENTION_TESTS_CLIENT_SCRIPTED_SERVICE_H_
#define ATTENTION_TESTS_CLIENT_SCRIPTED_SERVICE_H_

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <chrono>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.grpc.pb.h"
#include "attention_client/client.h"

namespace attention::client {

/// The other end of a wire, told what to answer: how a client takes an error or
/// a malformed reply cannot be asked of a server that makes none. Calls get the
/// statuses in turn, and from then on `reply`; on a stream every request does,
/// unless it is to hang up after the first without a word.
class ScriptedService final : public v1::AttentionService::Service {
 public:
  explicit ScriptedService(std::vector<grpc::Status> statuses,
                           v1::AttendResponse reply = {}, bool hang_up = false)
      : statuses_(std::move(statuses)),
        reply_(std::move(reply)),
        hang_up_(hang_up) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(),
                             &port_);
    builder.SetMaxReceiveMessageSize(std::numeric_limits<int>::max());
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }

  std::string address() const { return absl::StrCat("127.0.0.1:", port_); }

  /// The requests that arrived, each attempt by itself.
  std::vector<v1::AttendRequest> requests() {
    const std::lock_guard lock(mutex_);
    return requests_;
  }

  grpc::Status Attend(grpc::ServerContext*, const v1::AttendRequest* request,
                      v1::AttendResponse* response) override {
    *response = reply_;
    return Next(*request);
  }

  grpc::Status AttendStream(
      grpc::ServerContext*,
      grpc::ServerReaderWriter<v1::AttendStreamResponse, v1::AttendRequest>*
          stream) override {
    v1::AttendRequest request;
    while (stream->Read(&request)) {
      if (grpc::Status status = Next(request); !status.ok()) return status;
      if (hang_up_) break;
      v1::AttendStreamResponse response;
      response.set_id(reply_.id());
      *response.mutable_result() = reply_;
      stream->Write(response);
    }
    return grpc::Status::OK;
  }

 private:
  grpc::Status Next(const v1::AttendRequest& request) {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    const size_t index = requests_.size() - 1;
    return index < statuses_.size() ? statuses_[index] : grpc::Status::OK;
  }

  const std::vector<grpc::Status> statuses_;
  const v1::AttendResponse reply_;
  const bool hang_up_;
  std::mutex mutex_;
  std::vector<v1::AttendRequest> requests_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;  // last: it uses the others
};

/// One number, which is 0.
inline v1::AttendResponse GoodReply() {
  v1::AttendResponse reply;
  reply.mutable_output()->set_datatype(v1::DATA_TYPE_FP32);
  reply.mutable_output()->add_shape(1);
  reply.mutable_output()->set_data(std::string(4, '\0'));
  return reply;
}

/// A client that waits a millisecond before it asks again.
inline Client QuickClient(const std::string& target, int max_attempts = 4) {
  return *Client::Create({.target = target,
                          .max_attempts = max_attempts,
                          .initial_backoff = std::chrono::milliseconds(1)});
}

}  // namespace attention::client

#endif  // ATTENTION_TESTS_CLIENT_SCRIPTED_SERVICE_H_
