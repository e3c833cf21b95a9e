#include "server/services/key_value_service.h"

#include <sys/stat.h>

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/store/sequence_file.h"
#include "server/request/request_builder.h"
#include "server/services/answer.h"
#include "server/services/caller_of_call.h"
#include "server/services/sequence_messages.h"
#include "server/services/unary_call.h"
#include "server/wire/append_operation.h"

namespace attention::server {
namespace {

constexpr int kMostNames = 256;  // in one call

// Where the folder is, is nothing to callers: an error names the file alone.
absl::Status OfFile(const absl::Status& status, const std::string& path,
                    const std::string& file) {
  if (status.ok()) return status;
  return absl::Status(
      status.code(),
      absl::StrReplaceAll(absl::StrCat("file: ", status.message()),
                          {{path, absl::StrCat("'", file, "'")}}));
}

absl::Status Required(absl::string_view field) {
  return FieldError(field, "missing");
}

}  // namespace

KeyValueService::Reactor* KeyValueService::Ask(Context* context,
                                               const Work& work) {
  const auto caller = CallerOfCall(services_.callers, *context);
  if (!caller.ok()) return Answer(context, caller.status());
  return Answer(context, work(ResidentStore::OwnerOf(caller->get())));
}

KeyValueService::Reactor* KeyValueService::AskInTurn(Context* context,
                                                     Work work) {
  const auto caller = CallerOfCall(services_.callers, *context);
  if (!caller.ok()) return Answer(context, caller.status());
  Reactor* const reactor = context->DefaultReactor();
  files_.Add([context, reactor, work = std::move(work),
              owner = ResidentStore::OwnerOf(caller->get())](
                 const absl::Status& turn) {
    absl::Status status = turn;
    if (status.ok() && context->IsCancelled()) {
      status = absl::CancelledError("the caller cancelled the call");
    }
    if (status.ok()) status = work(owner);
    reactor->Finish(ToGrpcStatus(status));
  });
  return reactor;
}

KeyValueService::Reactor* KeyValueService::Append(
    Context* context, const grpc::ByteBuffer* request,
    grpc::ByteBuffer* response) {
  return UnaryCall::Begin(
      services_, calls_,
      [this](const Caller* caller) {
        return std::make_unique<AppendOperation>(
            ResidentAccess{&resident_, ResidentStore::OwnerOf(caller)});
      },
      context, request, response);
}

KeyValueService::Reactor* KeyValueService::Create(
    Context* context, const v1::CreateSequencesRequest* request,
    v1::CreateSequencesResponse* response) {
  return Ask(context, [&](const std::string& owner) {
    std::vector<store::NewSequence> wanted;
    for (const v1::NewSequence& message : request->sequences()) {
      absl::StatusOr<store::NewSequence> sequence =
          FromWire(message, resident_.idle_limit());
      if (!sequence.ok()) {
        return Named(absl::StrCat("sequences[", wanted.size(), "]"),
                     sequence.status());
      }
      wanted.push_back(*std::move(sequence));
    }
    auto names = store().Create(owner, wanted, store::Clock::now());
    if (!names.ok()) return names.status();
    for (std::string& name : *names) response->add_names(std::move(name));
    response->set_incarnation(resident_.incarnation());
    return absl::OkStatus();
  });
}

KeyValueService::Reactor* KeyValueService::Truncate(
    Context* context, const v1::TruncateRequest* request,
    v1::TruncateResponse*) {
  return Ask(context, [&](const std::string& owner) {
    if (!request->has_length()) return Required("length");
    return store().Truncate(owner, request->name(), request->length(),
                            store::Clock::now());
  });
}

KeyValueService::Reactor* KeyValueService::Fork(Context* context,
                                                const v1::ForkRequest* request,
                                                v1::ForkResponse* response) {
  return Ask(context, [&](const std::string& owner) {
    const absl::StatusOr<store::NewFork> fork = FromWire(*request);
    if (!fork.ok()) return fork.status();
    absl::StatusOr<std::string> name =
        store().Fork(owner, request->name(), *fork, store::Clock::now());
    if (!name.ok()) return name.status();
    response->set_name(*std::move(name));
    return absl::OkStatus();
  });
}

KeyValueService::Reactor* KeyValueService::Describe(
    Context* context, const v1::DescribeSequenceRequest* request,
    v1::SequenceDescription* response) {
  return Ask(context, [&](const std::string& owner) {
    const absl::StatusOr<store::Description> description =
        store().Describe(owner, request->name(), store::Clock::now());
    if (!description.ok()) return description.status();
    ToWire(*description, resident_.incarnation(), *response);
    return absl::OkStatus();
  });
}

KeyValueService::Reactor* KeyValueService::List(
    Context* context, const v1::ListSequencesRequest* request,
    v1::ListSequencesResponse* response) {
  return Ask(context, [&](const std::string& owner) {
    const absl::StatusOr<store::ListQuery> query = FromWire(*request);
    if (!query.ok()) return query.status();
    const absl::StatusOr<store::ListedPage> page =
        store().List(owner, *query, store::Clock::now());
    if (!page.ok()) return page.status();
    for (const store::Description& one : page->sequences) {
      ToWire(one, resident_.incarnation(), *response->add_sequences());
    }
    if (page->next) response->set_next_page_token(PageTokenOf(*page->next));
    return absl::OkStatus();
  });
}

KeyValueService::Reactor* KeyValueService::Delete(
    Context* context, const v1::DeleteSequencesRequest* request,
    v1::DeleteSequencesResponse* response) {
  return Ask(context, [&](const std::string& owner) {
    if (request->names_size() > kMostNames) {
      return FieldError(
          "names", absl::StrCat(request->names_size(), " (expected: at most ",
                                kMostNames, ")"));
    }
    for (const std::string& name : request->names()) {
      // One that is not there is as it should be.
      if (store().Delete(owner, name).ok()) {
        response->set_deleted(response->deleted() + 1);
      }
    }
    return absl::OkStatus();
  });
}

KeyValueService::Reactor* KeyValueService::Export(
    Context* context, const v1::ExportSequenceRequest* request,
    v1::ExportSequenceResponse* response) {
  return AskInTurn(context, [=, this](const std::string& owner) {
    return WriteFile(owner, *request, *response);
  });
}

KeyValueService::Reactor* KeyValueService::Import(
    Context* context, const v1::ImportSequenceRequest* request,
    v1::ImportSequenceResponse* response) {
  return AskInTurn(context, [=, this](const std::string& owner) {
    return ReadFile(owner, *request, *response);
  });
}

absl::Status KeyValueService::WriteFile(
    const std::string& owner, const v1::ExportSequenceRequest& request,
    v1::ExportSequenceResponse& response) {
  const absl::StatusOr<std::string> path = resident_.PathOf(request.file());
  if (!path.ok()) return path.status();
  const auto sequence =
      store().Find(owner, request.name(), store::Clock::now());
  if (!sequence.ok()) return sequence.status();
  const auto snapshots = (*sequence)->TakeSnapshots();
  if (!snapshots.ok()) return snapshots.status();
  absl::Status status =
      store::WriteSequenceFile((*sequence)->form(), *snapshots, *path);
  if (!status.ok()) return OfFile(status, *path, request.file());
  struct stat facts {};
  if (stat(path->c_str(), &facts) == 0) {
    response.set_bytes(static_cast<uint64_t>(facts.st_size));
  }
  return absl::OkStatus();
}

// While it is read it can be seen, with as many keys as it has by then.
absl::Status KeyValueService::ReadFile(const std::string& owner,
                                       const v1::ImportSequenceRequest& request,
                                       v1::ImportSequenceResponse& response) {
  const absl::StatusOr<std::string> path = resident_.PathOf(request.file());
  if (!path.ok()) return path.status();
  const auto idle_limit =
      IdleLimitOf(request.has_idle_limit_ms(), request.idle_limit_ms());
  if (!idle_limit.ok()) return idle_limit.status();
  absl::StatusOr<SafetensorsReader> file = SafetensorsReader::OpenFile(*path);
  if (!file.ok()) return OfFile(file.status(), *path, request.file());
  const auto reader = store::SequenceFileReader::Open(*std::move(file));
  if (!reader.ok()) return OfFile(reader.status(), *path, request.file());
  store::NewSequence wanted = {
      .form = reader->form(),
      .name = request.name(),
      .label = request.label(),
      .idle_limit = *idle_limit ? *idle_limit : resident_.idle_limit()};
  const absl::StatusOr<std::string> made =
      store().Create(owner, wanted, store::Clock::now());
  if (!made.ok()) return made.status();
  const std::string& name = *made;
  absl::Status status = reader->Read(
      [&](int64_t layer, int64_t position, const KeyValueBlock& rows) {
        return store()
            .Append(owner, name, layer, position, rows, store::Clock::now())
            .status();
      });
  if (!status.ok()) {
    store().Delete(owner, name).IgnoreError();
    return OfFile(status, *path, request.file());
  }
  response.set_name(name);
  response.mutable_lengths()->Assign(reader->lengths().begin(),
                                     reader->lengths().end());
  response.set_incarnation(resident_.incarnation());
  return absl::OkStatus();
}

}  // namespace attention::server
