#include "server/services/key_value_service.h"

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/base/out_of_memory.h"
#include "server/request/request_builder.h"
#include "server/request/request_limits.h"
#include "server/scheduling/retry_after.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/grpc_call.h"
#include "server/services/sequence_messages.h"
#include "server/services/small_message.h"
#include "server/services/unary_call.h"
#include "server/wire/append_operation.h"

namespace attention::server {
namespace {

constexpr int kMostNames = 256;  // in one call
// Of a call without tensors: twice what so many names and labels take. What is
// parsed takes far more than its bytes, and nobody has counted it.
constexpr size_t kMostBytes = 256 << 10;

absl::Status Required(absl::string_view field) {
  return FieldError(field, "missing");
}

// For calls that make something: it would end with the server.
absl::Status CheckServing(const Admission& admission) {
  return admission.draining() ? absl::UnavailableError("the server is draining")
                              : absl::OkStatus();
}

absl::Status StillWanted(const grpc::CallbackServerContext& context) {
  return context.IsCancelled()
             ? absl::CancelledError("the caller cancelled the call")
             : absl::OkStatus();
}

// What a worker does in a call's turn, and the call's place until then.
class WorkInTurn final : public QueuedWork {
 public:
  WorkInTurn(Admission::Ticket ticket, std::function<void()> work)
      : ticket_(std::move(ticket)), work_(std::move(work)) {}

  void RunQueued(Turn& turn) override {
    turn.SetParts(1);
    work_();
  }

 private:
  const Admission::Ticket ticket_;
  const std::function<void()> work_;
};

}  // namespace

template <typename Request>
absl::StatusOr<KeyValueService::Asked<Request>> KeyValueService::Read(
    const Context& context, const grpc::ByteBuffer& request,
    std::optional<Right> right) const {
  absl::StatusOr<CallerPtr> caller = CallerOfCall(services_.callers, context);
  if (!caller.ok()) return caller.status();
  if (right) {
    absl::Status has = CheckRight(caller->get(), *right);
    if (!has.ok()) return has;
  }
  auto message = ReadStrictMessage<Request>(request, kMostBytes);
  if (!message.ok()) return message.status();
  std::string owner = ResidentStore::OwnerOf(caller->get());
  return Asked<Request>{*std::move(caller), std::move(owner),
                        *std::move(message)};
}

template <typename Request, typename Response>
KeyValueService::Reactor* KeyValueService::Ask(Context* context,
                                               const grpc::ByteBuffer& request,
                                               grpc::ByteBuffer& response,
                                               Work<Request, Response> work) {
  // Whether it may be repeated is not known where memory has run out.
  return Answer(context, WithoutBadAlloc([&] {
                  const auto asked = Read<Request>(*context, request);
                  if (!asked.ok()) return asked.status();
                  Response reply;
                  absl::Status status =
                      (this->*work)(asked->owner, asked->message, reply);
                  if (status.ok()) WriteMessage(reply, response);
                  return status;
                }));
}

template <typename Request, typename Response>
KeyValueService::Reactor* KeyValueService::AskInTurn(
    Context* context, const grpc::ByteBuffer& request,
    grpc::ByteBuffer& response, WorkOnFile<Request, Response> work) {
  Reactor* const reactor = context->DefaultReactor();
  // No more where its deadline has passed, or the server has drained for long
  // enough.
  const auto go_on = [context] { return StillWanted(*context); };
  const auto wait_for_turn = [&] {
    // Files are nobody's own: who may, reads and replaces those of all.
    auto asked = Read<Request>(*context, request, Right::kSequenceFiles);
    if (!asked.ok()) return asked.status();
    std::string party = PartyOf(asked->caller.get(), context->peer());
    files_.Add(
        [=, this, &response,
         asked = *std::move(asked)](const absl::Status& turn) {
          const auto in_turn = [&] {
            Response reply;
            absl::Status status =
                (this->*work)(asked.owner, asked.message, go_on, reply);
            if (status.ok()) WriteMessage(reply, response);
            return status;
          };
          reactor->Finish(ToGrpcStatus(
              turn.ok() ? WithoutBadAlloc(in_turn, OutOfMemoryForNow) : turn));
        },
        SerialQueue::Places::kAll, {std::move(party), go_on});
    return absl::OkStatus();
  };
  const absl::Status refusal =
      WithoutBadAlloc(wait_for_turn, OutOfMemoryForNow);
  if (!refusal.ok()) reactor->Finish(ToGrpcStatus(refusal));
  return reactor;
}

KeyValueService::Reactor* KeyValueService::Append(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return UnaryCall::Begin(
      services_, calls_, Rpc::kAppend,
      [this](const Caller* caller) {
        return std::make_unique<AppendOperation>(
            resident_.AccessOf(caller),
            LimitsOfRequest(options_, caller).max_dimension);
      },
      context, request, response);
}

KeyValueService::Reactor* KeyValueService::Create(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Ask(context, *request, *response, &KeyValueService::CreateFor);
}

KeyValueService::Reactor* KeyValueService::Truncate(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  Reactor* const reactor = context->DefaultReactor();
  bool waits = false;  // for its turn, in which it is answered
  const auto truncate = [&] {
    auto asked = Read<v1::TruncateRequest>(*context, *request);
    if (!asked.ok()) return asked.status();
    WriteMessage(v1::TruncateResponse(), *response);
    if (!IsChanging(asked->owner, asked->message.name())) {
      return TruncateFor(asked->owner, asked->message);
    }
    // gRPC's thread does not wait for whoever appends much.
    absl::Status late = TruncateInTurn(*context, *std::move(asked), *reactor);
    waits = late.ok();
    return late;
  };
  const absl::Status status = WithoutBadAlloc(truncate, OutOfMemoryForNow);
  if (!waits) reactor->Finish(ToGrpcStatus(status));
  return reactor;
}

absl::Status KeyValueService::TruncateInTurn(Context& context,
                                             Asked<v1::TruncateRequest> asked,
                                             Reactor& reactor) {
  const CallOrigin origin = OriginOf(context, asked.caller);
  const auto bytes = static_cast<int64_t>(asked.message.ByteSizeLong());
  auto ticket = services_.admission.Admit(
      origin.holder(), bytes, services_.LimitsOf(asked.caller.get()));
  if (!ticket.ok()) return ticket.status();
  const auto cost = services_.costs.Estimate(
      {server::Work::kCopy, static_cast<double>(bytes)});
  return services_.queue.Add(
      std::make_shared<WorkInTurn>(
          *std::move(ticket),
          [this, &context, &reactor, asked = std::move(asked)] {
            const auto truncate = [&] {
              absl::Status status = StillWanted(context);
              if (status.ok()) status = TruncateFor(asked.owner, asked.message);
              return status;
            };
            reactor.Finish(
                ToGrpcStatus(WithoutBadAlloc(truncate, OutOfMemoryForNow)));
          }),
      {origin.path(), cost, origin.deadline});
}

KeyValueService::Reactor* KeyValueService::Fork(Context* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return Ask(context, *request, *response, &KeyValueService::ForkFor);
}

KeyValueService::Reactor* KeyValueService::Describe(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Ask(context, *request, *response, &KeyValueService::DescribeFor);
}

KeyValueService::Reactor* KeyValueService::List(Context* context,
                                                const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) {
  return Ask(context, *request, *response, &KeyValueService::ListFor);
}

KeyValueService::Reactor* KeyValueService::Delete(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return Ask(context, *request, *response, &KeyValueService::DeleteFor);
}

KeyValueService::Reactor* KeyValueService::Export(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return AskInTurn(context, *request, *response, &KeyValueService::WriteFile);
}

KeyValueService::Reactor* KeyValueService::Import(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return AskInTurn(context, *request, *response, &KeyValueService::ReadFile);
}

absl::Status KeyValueService::CreateFor(
    const std::string& owner, const v1::CreateSequencesRequest& request,
    v1::CreateSequencesResponse& response) {
  absl::Status serving = CheckServing(services_.admission);
  if (!serving.ok()) return serving;
  std::vector<store::NewSequence> wanted;
  for (const v1::NewSequence& message : request.sequences()) {
    absl::StatusOr<store::NewSequence> sequence =
        FromWire(message, resident_.idle_limit());
    if (!sequence.ok()) {
      return Named(absl::StrCat("sequences[", wanted.size(), "]"),
                   sequence.status());
    }
    wanted.push_back(*std::move(sequence));
  }
  auto names = store().Create(owner, wanted, store::Clock::now());
  if (!names.ok()) return OrTryAgain(names.status());
  for (std::string& name : *names) response.add_names(std::move(name));
  response.set_incarnation(resident_.incarnation());
  return absl::OkStatus();
}

bool KeyValueService::IsChanging(const std::string& owner,
                                 const std::string& name) {
  const auto sequence = store().Find(owner, name, store::Clock::now());
  if (!sequence.ok()) return false;
  for (int64_t layer = 0; layer < (*sequence)->form().layers; ++layer) {
    if ((*sequence)->IsChanging(layer)) return true;
  }
  return false;
}

absl::Status KeyValueService::TruncateFor(const std::string& owner,
                                          const v1::TruncateRequest& request) {
  if (!request.has_length()) return Required("length");
  return store().Truncate(owner, request.name(), request.length(),
                          store::Clock::now());
}

absl::Status KeyValueService::ForkFor(const std::string& owner,
                                      const v1::ForkRequest& request,
                                      v1::ForkResponse& response) {
  absl::Status serving = CheckServing(services_.admission);
  if (!serving.ok()) return serving;
  const absl::StatusOr<store::NewFork> fork = FromWire(request);
  if (!fork.ok()) return fork.status();
  absl::StatusOr<std::string> name =
      store().Fork(owner, request.name(), *fork, store::Clock::now());
  if (!name.ok()) return OrTryAgain(name.status());
  response.set_name(*std::move(name));
  return absl::OkStatus();
}

absl::Status KeyValueService::DescribeFor(
    const std::string& owner, const v1::DescribeSequenceRequest& request,
    v1::SequenceDescription& response) {
  const absl::StatusOr<store::Description> description =
      store().Describe(owner, request.name(), store::Clock::now());
  if (!description.ok()) return description.status();
  ToWire(*description, resident_.incarnation(), response);
  return absl::OkStatus();
}

absl::Status KeyValueService::ListFor(const std::string& owner,
                                      const v1::ListSequencesRequest& request,
                                      v1::ListSequencesResponse& response) {
  const absl::StatusOr<store::ListQuery> query = FromWire(request);
  if (!query.ok()) return query.status();
  const absl::StatusOr<store::ListedPage> page =
      store().List(owner, *query, store::Clock::now());
  if (!page.ok()) return page.status();
  for (const store::Description& one : page->sequences) {
    ToWire(one, resident_.incarnation(), *response.add_sequences());
  }
  if (page->next) response.set_next_page_token(PageTokenOf(*page->next));
  return absl::OkStatus();
}

absl::Status KeyValueService::DeleteFor(
    const std::string& owner, const v1::DeleteSequencesRequest& request,
    v1::DeleteSequencesResponse& response) {
  if (request.names_size() > kMostNames) {
    return FieldError("names",
                      absl::StrCat(request.names_size(), " (expected: at most ",
                                   kMostNames, ")"));
  }
  for (const std::string& name : request.names()) {
    // One that is not there is as it should be.
    if (store().Delete(owner, name).ok()) {
      response.set_deleted(response.deleted() + 1);
    }
  }
  return absl::OkStatus();
}

absl::Status KeyValueService::WriteFile(
    const std::string& owner, const v1::ExportSequenceRequest& request,
    GoOn go_on, v1::ExportSequenceResponse& response) {
  absl::StatusOr<std::string> path = resident_.PathOf(request.file());
  if (!path.ok()) return path.status();
  const absl::StatusOr<int64_t> bytes =
      ExportSequence(store(), owner, request.name(),
                     {*std::move(path), request.file()}, go_on);
  if (!bytes.ok()) return bytes.status();
  response.set_bytes(static_cast<uint64_t>(*bytes));
  return absl::OkStatus();
}

absl::Status KeyValueService::ReadFile(const std::string& owner,
                                       const v1::ImportSequenceRequest& request,
                                       GoOn go_on,
                                       v1::ImportSequenceResponse& response) {
  absl::StatusOr<std::string> path = resident_.PathOf(request.file());
  if (!path.ok()) return path.status();
  absl::StatusOr<store::NewSequence> wanted =
      FromWire(request, resident_.idle_limit());
  if (!wanted.ok()) return wanted.status();
  const absl::StatusOr<ImportedSequence> made =
      ImportSequence(store(), owner, {*std::move(path), request.file()},
                     *std::move(wanted), go_on);
  if (!made.ok()) return OrTryAgain(made.status());
  response.set_name(made->name);
  response.mutable_lengths()->Assign(made->lengths.begin(),
                                     made->lengths.end());
  response.set_incarnation(resident_.incarnation());
  return absl::OkStatus();
}

}  // namespace attention::server
