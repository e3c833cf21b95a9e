#include "server/shards/shard_call.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/server_context.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "attention/v1/attention.grpc.pb.h"
#include "server/base/out_of_memory.h"
#include "server/scheduling/retry_after.h"
#include "server/shards/peer_status.h"
#include "server/telemetry/trace_context.h"
#include "server/wire/status_table.h"

namespace attention::server {
namespace {

using PeerStub =
    grpc::TemplatedGenericStub<grpc::ByteBuffer, v1::AttendResponse>;

constexpr char kAuthorization[] = "authorization";

// Bytes of all answers that are merged where the last one comes in. Merging
// takes about a nanosecond for each.
constexpr int64_t kMostBytesAtOnce = 512 << 10;

const std::string& Method() {
  static const auto& method =
      *new std::string(absl::StrCat("/", v1::ShardService::service_full_name(),
                                    "/", NameOf(Rpc::kAttendShards).method));
  return method;
}

}  // namespace

ShardCall::ShardCall(const TaskServices& services, ActiveCalls& calls,
                     Origin origin, Peers& peers,
                     grpc::CallbackServerContext& context,
                     grpc::ByteBuffer& response)
    : Call(services, calls, Rpc::kOther, std::move(origin.call)),
      authorization_(std::move(origin.authorization)),
      peers_(peers),
      context_(context),
      response_(response) {
  facts_.operation = "attend_shards";
  facts_.rpc = Rpc::kAttendShards;
  facts_.peer = this->origin().peer;
  facts_.trace_parent = this->origin().trace_parent;
  if (this->origin().caller != nullptr) {
    facts_.caller = this->origin().caller->name;
  }
}

void ShardCall::Go(grpc::ByteBuffer& message, const NewWire& new_wire,
                   const NewPart& new_part) {
  if (services().metrics != nullptr) {
    services().metrics->NoteArrival(facts_.rpc);
  }
  const absl::Status status =
      WithoutBadAlloc([&] { return Read(ReceivedMessage(message)); },
                      [this] {
                        facts_.refusal = Refusal::kServerMemory;
                        return OutOfMemoryForNow();
                      });
  if (!status.ok()) {
    facts_.refused = true;
    return End(status);
  }
  const size_t parts = request_.parts.size();
  for (size_t i = 0; i < parts; ++i) {
    const auto arrive = [&] {
      PartRules rules{&answers_[i]};
      std::shared_ptr<AttendWire> wire = new_wire();
      if (i == 0) {
        wire_ = wire;
        rules.other_answers = static_cast<int64_t>(request_.others.size());
        // The call lives until the part has been emitted.
        rules.on_admitted = [this] { AskOthers(); };
      }
      return RequestArrival{new_part(std::move(wire), std::move(rules)),
                            PartMessage(request_, i), origin_ptr()};
    };
    Start(arrive, static_cast<int64_t>(i));
  }
}

absl::Status ShardCall::Read(ReceivedMessage message) {
  facts_.request_bytes = message.bytes();
  absl::StatusOr<ShardRequest> request = ReadShardRequest(message);
  if (!request.ok()) return request.status();
  request_ = *std::move(request);
  if (absl::Status may = CheckOthers(); !may.ok()) return may;
  pending_ = request_.parts.size();
  answers_.resize(pending_ + request_.others.size());
  for (size_t i = 0; i < pending_; ++i) {
    answers_[i].whose = absl::StrCat("parts[", i, "]");
  }
  tickets_.reserve(pending_);
  return absl::OkStatus();
}

absl::Status ShardCall::CheckOthers() const {
  for (const ShardRequest::Other& other : request_.others) {
    if (absl::Status may = peers_.Check(other.target); !may.ok()) return may;
  }
  // Else another server would take this one for the caller.
  if (!request_.others.empty() && services().callers != nullptr &&
      authorization_.empty()) {
    return absl::UnauthenticatedError(
        "shard.shards: other servers are asked in the caller's name, which its "
        "certificate cannot show them (expected a token)");
  }
  return absl::OkStatus();
}

void ShardCall::AskOthers() {
  const size_t others = request_.others.size();
  // They are counted once there was memory for all: who is counted and not
  // asked would be waited for.
  std::vector<std::unique_ptr<Asked>> asked;
  asked.reserve(others);
  for (size_t i = 0; i < others; ++i) asked.push_back(Prepare(i));
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    asked_ = std::move(asked);
    pending_ += others;
  }
  for (size_t i = 0; i < others; ++i) Ask(i);
}

std::unique_ptr<ShardCall::Asked> ShardCall::Prepare(size_t other) {
  const std::string& target = request_.others[other].target;
  answers_[request_.parts.size() + other].whose = target;
  auto asked = std::make_unique<Asked>();
  asked->channel = peers_.Find(target);
  asked->request = MessageToOther(request_, other);
  grpc::ClientContext& context = asked->context;
  context.set_deadline(origin().deadline);
  if (!authorization_.empty()) {
    context.AddMetadata(kAuthorization, authorization_);
  }
  if (!origin().trace_parent.empty()) {
    context.AddMetadata(kTraceParent, origin().trace_parent);
  }
  return asked;
}

void ShardCall::Ask(size_t other) {
  Asked& asked = *asked_[other];
  ShardAnswer& answer = answers_[request_.parts.size() + other];
  const auto done = [self = shared_from_this(), this,
                     other](const grpc::Status& status) {
    OnAnswer(other, status);
  };
  absl::Status begun = WithoutBadAlloc([&] {
    PeerStub(asked.channel)
        .UnaryCall(&asked.context, Method(), {}, &asked.request, &answer.reply,
                   done);
    return absl::OkStatus();
  });
  if (begun.ok()) return;
  Fail(std::move(begun));
  Arrived();
}

// gRPC takes what is thrown here for nothing, and nobody would conclude.
void ShardCall::OnAnswer(size_t other, const grpc::Status& status) {
  ShardAnswer& answer = answers_[request_.parts.size() + other];
  asked_[other]->request.Clear();
  absl::Status taken = WithoutBadAlloc([&] {
    if (!status.ok()) return StatusOfPeer(status, answer.whose);
    answer.backend = answer.reply.backend();
    answer.kernel = answer.reply.kernel();
    answer.queue_time = std::chrono::nanoseconds(answer.reply.queue_ns());
    answer.compute_time = std::chrono::nanoseconds(answer.reply.compute_ns());
    return absl::OkStatus();
  });
  if (!taken.ok()) Fail(std::move(taken));
  Arrived();
}

void ShardCall::Emit(int64_t /*number*/, Task::Outcome outcome) {
  if (outcome.status.ok()) {
    const std::lock_guard lock(mutex_);
    tickets_.push_back(std::move(outcome.ticket));
  } else {
    Fail(std::move(outcome.status));
  }
  Arrived();
}

void ShardCall::Fail(absl::Status status) {
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.ok()) return;
    failure_ = std::move(status);
    for (const auto& asked : asked_) asked->context.TryCancel();
  }
  Stop(StopReason::kCancelled);
}

absl::Status ShardCall::failure() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

void ShardCall::Arrived() {
  {
    const std::lock_guard lock(mutex_);
    if (--pending_ > 0) return;
  }
  const int64_t bytes = answers_.front().results.empty()
                            ? 0
                            : answers_.front().results.front().bytes *
                                  static_cast<int64_t>(answers_.size());
  if (bytes <= kMostBytesAtOnce || !failure().ok()) {
    return Conclude(HoldUncounted);
  }
  const absl::Status queued = WithoutBadAlloc([&] {
    return services().queue.Add(
        std::shared_ptr<QueuedWork>(shared_from_this(), this),
        {origin().path(), std::chrono::nanoseconds(bytes), origin().deadline});
  });
  if (!queued.ok()) End(queued);
}

void ShardCall::RunQueued(Turn& turn) {
  turn.SetParts(1);
  Conclude([&](int64_t) {
    turn.GiveWay();
    return failure();
  });
}

void ShardCall::Conclude(HoldBytes hold) {
  absl::Status status = failure();
  // Without a time to try again: a part may have appended.
  if (status.ok()) status = WithoutBadAlloc([&] { return Reply(hold); });
  End(status);
}

absl::Status ShardCall::Reply(HoldBytes hold) {
  // One answer is what it is.
  if (answers_.size() > 1) {
    absl::Status merged = MergeAnswers(absl::MakeSpan(answers_), hold);
    if (!merged.ok()) return merged;
  }
  for (const ShardAnswer& answer : answers_) {
    facts_.queue_time = std::max(facts_.queue_time, answer.queue_time);
    facts_.compute_time = std::max(facts_.compute_time, answer.compute_time);
  }
  facts_.backend = answers_.front().backend;
  facts_.kernel = answers_.front().kernel;
  ReplyBuffer reply =
      wire_->Encode(absl::MakeSpan(answers_.front().results), facts_);
  facts_.reply_bytes = static_cast<int64_t>(reply.bytes().Length());
  response_.Swap(&reply.bytes());
  return absl::OkStatus();
}

void ShardCall::End(const absl::Status& status) {
  const std::chrono::nanoseconds took =
      std::chrono::steady_clock::now() - begin_;
  IfMemoryAllows([this] {
    if (wire_ != nullptr) facts_.id = wire_->id();
  });
  // Of the call: with the time in which it waited for others.
  facts_.queue_time = std::min(facts_.queue_time, took);
  facts_.compute_time = took - facts_.queue_time;
  facts_.status = status;
  // Its parts have been counted where they were computed.
  facts_.backend.clear();
  facts_.kernel.clear();
  Observe(facts_, services().metrics);
  watch_ = calls().WatchReply(context_.c_call(), origin().peer);
  Finish(ToGrpcStatus(status));
}

void ShardCall::OnCancel() {
  Fail(WithoutBadAlloc([this] {
    return origin().WhyCancelled() == StopReason::kDeadline
               ? absl::DeadlineExceededError("the caller's deadline passed")
               : absl::CancelledError("the caller cancelled the request");
  }));
  Abandon();
}

void ShardCall::OnDrainEnd() {
  Fail(WithoutBadAlloc([] {
    return absl::UnavailableError(
        "the server is draining and its drain time is over");
  }));
}

void ShardCall::OnDone() {
  watch_ = ReplyWatch::Watch();
  tickets_.clear();
  Leave();
}

}  // namespace attention::server
