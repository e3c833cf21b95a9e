#include "client/cpp/src/stream.h"

#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/status.h"
#include "client/cpp/src/wire.h"

namespace attention::client {
namespace {

using OnReply = std::function<void(size_t, absl::StatusOr<AttendResult>)>;
using Stream =
    grpc::ClientReaderWriter<v1::AttendRequest, v1::AttendStreamResponse>;

// What is sent, and which request each id stands for until it is answered.
struct Outgoing {
  std::vector<size_t> indices;
  std::unordered_map<std::string, size_t> unanswered;
};

std::string IdOf(const AttendRequest& request, size_t index) {
  return request.id.empty() ? absl::StrCat(index) : request.id;
}

// INVALID_ARGUMENT where two requests have one id: their replies could not be
// told apart.
absl::Status CheckIds(const std::vector<AttendRequest>& requests) {
  std::unordered_map<std::string, size_t> seen;
  for (size_t i = 0; i < requests.size(); ++i) {
    const auto [first, is_new] = seen.emplace(IdOf(requests[i], i), i);
    if (!is_new) {
      return absl::InvalidArgumentError(
          absl::StrCat("id: requests ", first->second, " and ", i,
                       " of the stream are both \"", first->first, "\""));
    }
  }
  return absl::OkStatus();
}

// Writes everything, then says so. Runs on a thread of its own: a server that
// stops reading until its replies are read would otherwise never go on. Flow
// control bounds what is under way; one encoded request is held beside that.
void WriteAll(Stream& stream, const std::vector<AttendRequest>& requests,
              const std::vector<size_t>& indices) {
  for (const size_t index : indices) {
    v1::AttendRequest message = ToProto(requests[index]);
    if (message.id().empty()) message.set_id(IdOf(requests[index], index));
    // False: the stream is over, and Finish() will say why.
    if (!stream.Write(message)) return;
  }
  stream.WritesDone();
}

// Ends the writer whichever way the reader leaves: an exception of the caller's
// on_reply included.
class WriterThread {
 public:
  WriterThread(grpc::ClientContext& context, std::thread thread)
      : context_(context), thread_(std::move(thread)) {}
  WriterThread(const WriterThread&) = delete;
  WriterThread& operator=(const WriterThread&) = delete;
  ~WriterThread() { Cancel(); }

  void Join() {
    if (thread_.joinable()) thread_.join();
  }
  void Cancel() {
    if (thread_.joinable()) context_.TryCancel();
    Join();
  }

 private:
  grpc::ClientContext& context_;
  std::thread thread_;
};

// Hands one reply to its request. INTERNAL for a reply to none of them.
absl::Status Deliver(const v1::AttendStreamResponse& reply,
                     const std::vector<AttendRequest>& requests,
                     std::unordered_map<std::string, size_t>& unanswered,
                     const OnReply& on_reply) {
  const auto found = unanswered.find(reply.id());
  if (found == unanswered.end()) {
    // An error without an id is of a request that the server could not read to
    // its end, perhaps because the deadline passed: the stream's error.
    if (reply.id().empty() && reply.has_error() && reply.error().code() != 0) {
      return StatusFromCode(reply.error().code(), reply.error().message());
    }
    return absl::InternalError(absl::StrCat(
        "reply: id \"", reply.id(), "\" is of no request that waits",
        reply.has_error() ? ": " : "", reply.error().message()));
  }
  const size_t index = found->second;
  unanswered.erase(found);
  if (reply.has_error()) {
    absl::Status error =
        StatusFromCode(reply.error().code(), reply.error().message());
    if (error.ok()) error = absl::InternalError("reply: error with code OK");
    on_reply(index, std::move(error));
  } else if (reply.has_result()) {
    absl::StatusOr<AttendResult> result =
        FromProto(requests[index], reply.result());
    if (result.ok()) result->id = reply.id();
    on_reply(index, std::move(result));
  } else {
    on_reply(index, absl::InternalError("reply: neither result nor error"));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunStream(v1::AttentionService::Stub& stub,
                       grpc::ClientContext& context, int64_t max_message_bytes,
                       const std::vector<AttendRequest>& requests,
                       const OnReply& on_reply) {
  if (absl::Status ids = CheckIds(requests); !ids.ok()) return ids;
  Outgoing outgoing;
  for (size_t i = 0; i < requests.size(); ++i) {
    absl::Status sendable = CheckSendable(requests[i], max_message_bytes);
    if (sendable.ok()) {
      outgoing.indices.push_back(i);
      outgoing.unanswered.emplace(IdOf(requests[i], i), i);
    } else {
      on_reply(i, std::move(sendable));
    }
  }
  if (outgoing.indices.empty()) return absl::OkStatus();

  const std::unique_ptr<Stream> stream = stub.AttendStream(&context);
  WriterThread writer(
      context, std::thread(WriteAll, std::ref(*stream), std::cref(requests),
                           std::cref(outgoing.indices)));
  v1::AttendStreamResponse reply;
  while (stream->Read(&reply)) {
    absl::Status delivered =
        Deliver(reply, requests, outgoing.unanswered, on_reply);
    if (!delivered.ok()) return delivered;
  }
  // Nothing more comes, so that a writer that still waits will find the stream
  // ended by itself.
  writer.Join();
  absl::Status status = ToAbslStatus(stream->Finish());
  if (status.ok() && !outgoing.unanswered.empty()) {
    return absl::InternalError(
        absl::StrCat("reply: the server ended the stream with ",
                     outgoing.unanswered.size(), " requests unanswered"));
  }
  return status;
}

}  // namespace attention::client
