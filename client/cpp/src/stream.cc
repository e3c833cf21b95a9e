#include "client/cpp/src/stream.h"

#include <grpcpp/completion_queue.h>

#include <memory>
#include <string>
#include <unordered_map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cpp/src/reply_decoder.h"
#include "client/cpp/src/request_encoder.h"
#include "client/cpp/src/status.h"
#include "client/cpp/src/wire.h"

namespace attention::client {
namespace {

using OnReply = std::function<void(size_t, absl::StatusOr<AttendResult>)>;

constexpr char kMethod[] = "/attention.v1.AttentionService/AttendStream";
// Smaller messages may wait for the next one, to go out in one write.
constexpr size_t kMostBytesHeldBack = 16 << 10;

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

// Hands one reply to its request. INTERNAL for a reply to none of them.
absl::Status Deliver(StreamReply decoded,
                     const std::vector<AttendRequest>& requests,
                     std::unordered_map<std::string, size_t>& unanswered,
                     const OnReply& on_reply) {
  const v1::AttendStreamResponse& reply = decoded.fields;
  const auto found = unanswered.find(reply.id());
  if (found == unanswered.end()) {
    // An error without an id is of a request that the server could not read to
    // its end, perhaps because the deadline passed: the stream's error.
    if (reply.id().empty() && reply.has_error() && reply.error().code() != 0) {
      return ToAbslStatus(reply.error());
    }
    return absl::InternalError(absl::StrCat(
        "reply: id \"", reply.id(), "\" is of no request that waits",
        reply.has_error() ? ": " : "", reply.error().message()));
  }
  const size_t index = found->second;
  unanswered.erase(found);
  if (reply.has_error()) {
    absl::Status error = ToAbslStatus(reply.error());
    if (error.ok()) error = absl::InternalError("reply: error with code OK");
    on_reply(index, std::move(error));
  } else if (decoded.result) {
    absl::StatusOr<AttendResult> result =
        ToResult(requests[index], *std::move(decoded.result));
    if (result.ok()) result->id = reply.id();
    on_reply(index, std::move(result));
  } else {
    on_reply(index, absl::InternalError("reply: neither result nor error"));
  }
  return absl::OkStatus();
}

// The call itself. Reading and writing go on independently of each other: a
// server that stops reading until its replies are read would otherwise never go
// on. Flow control bounds what is under way.
class Conversation {
 public:
  Conversation(grpc::GenericStub& stub, grpc::ClientContext& context,
               const std::vector<AttendRequest>& requests, Outgoing outgoing)
      : context_(context),
        requests_(requests),
        outgoing_(std::move(outgoing)),
        stream_(stub.PrepareCall(&context, kMethod, &queue_)) {}
  Conversation(const Conversation&) = delete;
  Conversation& operator=(const Conversation&) = delete;

  // Ends the call whichever way Run() was left: an exception of the caller's
  // on_reply included.
  ~Conversation() {
    if (pending_ > 0) context_.TryCancel();
    void* tag = nullptr;
    bool ok = false;
    for (; pending_ > 0; --pending_) queue_.Next(&tag, &ok);
    queue_.Shutdown();
    while (queue_.Next(&tag, &ok)) {
    }
  }

  // Returns when the call has ended; `on_reply` is called from here.
  absl::Status Run(const OnReply& on_reply) {
    stream_->StartCall(Tag(Step::kStart));
    ++pending_;
    while (pending_ > 0) {
      void* tag = nullptr;
      bool ok = false;
      queue_.Next(&tag, &ok);
      --pending_;
      absl::Status status = OnStep(tag, ok, on_reply);
      if (!status.ok()) return status;
    }
    absl::Status status = ToAbslStatus(status_);
    if (status.ok() && !outgoing_.unanswered.empty()) {
      return absl::InternalError(
          absl::StrCat("reply: the server ended the stream with ",
                       outgoing_.unanswered.size(), " requests unanswered"));
    }
    return status;
  }

 private:
  enum class Step : uint8_t { kStart, kRead, kWrite, kFinish };

  void* Tag(Step step) { return &steps_[static_cast<size_t>(step)]; }

  absl::Status OnStep(const void* tag, bool ok, const OnReply& on_reply) {
    if (tag == Tag(Step::kFinish)) return absl::OkStatus();
    if (tag == Tag(Step::kRead)) {
      if (ok) {
        absl::Status status = OnRead(on_reply);
        if (!status.ok()) return status;
      }
    } else {
      writing_ = false;
    }
    if (tag == Tag(Step::kStart) || (tag == Tag(Step::kRead) && ok)) {
      StartRead();
    }
    // A write that failed says that the stream is over, and so will the read.
    if (tag == Tag(Step::kRead) && !ok) over_ = true;
    if (tag != Tag(Step::kRead) && ok && !over_) StartWrite();
    if (over_ && !writing_) {
      stream_->Finish(&status_, Tag(Step::kFinish));
      ++pending_;
    }
    return absl::OkStatus();
  }

  void StartRead() {
    incoming_.Clear();
    stream_->Read(&incoming_, Tag(Step::kRead));
    ++pending_;
  }

  absl::Status OnRead(const OnReply& on_reply) {
    absl::StatusOr<StreamReply> reply = DecodeStreamReply(incoming_);
    if (!reply.ok()) return reply.status();
    return Deliver(*std::move(reply), requests_, outgoing_.unanswered,
                   on_reply);
  }

  // The next request, or that there is none.
  void StartWrite() {
    if (next_ > outgoing_.indices.size()) return;
    writing_ = true;
    ++pending_;
    if (next_ == outgoing_.indices.size()) {
      stream_->WritesDone(Tag(Step::kWrite));
    } else {
      const size_t index = outgoing_.indices[next_];
      const AttendRequest& request = requests_[index];
      const grpc::ByteBuffer message =
          EncodeRequest(request, IdOf(request, index));
      grpc::WriteOptions options;
      if (message.Length() < kMostBytesHeldBack) options.set_buffer_hint();
      stream_->Write(message, options, Tag(Step::kWrite));
    }
    ++next_;
  }

  grpc::ClientContext& context_;
  const std::vector<AttendRequest>& requests_;
  Outgoing outgoing_;
  grpc::CompletionQueue queue_;
  const std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  char steps_[4] = {};         // whose addresses are the tags
  int pending_ = 0;            // steps that were begun and not seen to end
  grpc::ByteBuffer incoming_;  // gRPC's while it reads
  size_t next_ = 0;            // request to write
  bool writing_ = false;
  bool over_ = false;  // nothing more comes
  grpc::Status status_;
};

}  // namespace

absl::Status RunStream(grpc::GenericStub& stub, grpc::ClientContext& context,
                       int64_t max_message_bytes,
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

  return Conversation(stub, context, requests, std::move(outgoing))
      .Run(on_reply);
}

}  // namespace attention::client
