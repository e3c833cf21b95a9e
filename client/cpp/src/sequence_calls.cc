// What a client does with sequences, but for attending (client.cc).
#include <iterator>
#include <optional>
#include <utility>

#include "attention_client/client.h"
#include "client/cpp/src/client_impl.h"
#include "client/cpp/src/request_encoder.h"
#include "client/cpp/src/sequence_messages.h"
#include "client/cpp/src/unary_call.h"
#include "client/cpp/src/wire.h"

namespace attention::client {
namespace {

using Stub = v1::KeyValueService::Stub;

constexpr char kAppendMethod[] = "/attention.v1.KeyValueService/Append";

}  // namespace

absl::StatusOr<CreatedSequences> Client::CreateSequences(
    const std::vector<NewSequence>& sequences) const {
  const auto request = ToProto(sequences);
  if (!request.ok()) return request.status();
  const auto response = impl_->Call(
      &Stub::Create, *request,
      sequences.empty() ? absl::string_view() : sequences.front().name);
  if (!response.ok()) return response.status();
  return CreatedSequences{{response->names().begin(), response->names().end()},
                          response->incarnation()};
}

absl::StatusOr<AppendedKeys> Client::AppendToSequence(
    const SequenceLayer& to, const KeysAndValues& rows) const {
  return impl_->Append(
      to, {rows.key, rows.value, rows.key_scale, rows.value_scale});
}

absl::StatusOr<AppendedKeys> Client::AppendToSequence(
    const SequenceLayer& to, const Tensor& key, const Tensor& value) const {
  return impl_->Append(to, {key, value, std::nullopt, std::nullopt});
}

absl::StatusOr<AppendedKeys> Client::Impl::Append(
    const SequenceLayer& to, const RowsToSend& rows) const {
  absl::Status sendable = CheckSendable(rows, options.max_message_bytes);
  if (!sendable.ok()) return sendable;
  grpc::ClientContext context;
  Prepare(context, to.name);
  grpc::ByteBuffer message;
  grpc::Status status =
      CallUnary(Raw(to.position.has_value()), context, kAppendMethod,
                EncodeAppend(to, rows), message);
  v1::AppendResponse response;
  if (status.ok()) {
    status = grpc::SerializationTraits<v1::AppendResponse>::Deserialize(
        &message, &response);
  }
  if (!status.ok()) return ToAbslStatus(status);
  return AppendedKeys{response.length(), response.new_keys()};
}

absl::Status Client::TruncateSequence(const std::string& name,
                                      int64_t length) const {
  v1::TruncateRequest request;
  request.set_name(name);
  request.set_length(length);
  return impl_->Call(&Stub::Truncate, request, name).status();
}

absl::StatusOr<std::string> Client::ForkSequence(const std::string& name,
                                                 const NewFork& fork) const {
  const auto response = impl_->Call(&Stub::Fork, ToProto(name, fork), name);
  if (!response.ok()) return response.status();
  return response->name();
}

absl::StatusOr<SequenceDescription> Client::DescribeSequence(
    const std::string& name) const {
  v1::DescribeSequenceRequest request;
  request.set_name(name);
  const auto response = impl_->Call(&Stub::Describe, request, name);
  if (!response.ok()) return response.status();
  return FromProto(*response);
}

absl::StatusOr<SequencePage> Client::ListSequences(
    const SequenceQuery& query) const {
  const auto response = impl_->Call(&Stub::List, ToProto(query), {});
  if (!response.ok()) return response.status();
  SequencePage page;
  for (const v1::SequenceDescription& message : response->sequences()) {
    absl::StatusOr<SequenceDescription> sequence = FromProto(message);
    if (!sequence.ok()) return sequence.status();
    page.sequences.push_back(*std::move(sequence));
  }
  page.next_page_token = response->next_page_token();
  return page;
}

absl::StatusOr<std::vector<SequenceDescription>> Client::ListAllSequences(
    SequenceQuery query) const {
  std::vector<SequenceDescription> all;
  do {
    absl::StatusOr<SequencePage> page = ListSequences(query);
    if (!page.ok()) return page.status();
    std::move(page->sequences.begin(), page->sequences.end(),
              std::back_inserter(all));
    query.page_token = std::move(page->next_page_token);
  } while (!query.page_token.empty());
  return all;
}

absl::StatusOr<int64_t> Client::DeleteSequences(
    const std::vector<std::string>& names) const {
  v1::DeleteSequencesRequest request;
  request.mutable_names()->Assign(names.begin(), names.end());
  const auto response =
      impl_->Call(&Stub::Delete, request,
                  names.empty() ? absl::string_view() : names.front());
  if (!response.ok()) return response.status();
  return response->deleted();
}

absl::StatusOr<uint64_t> Client::ExportSequence(const std::string& name,
                                                const std::string& file) const {
  v1::ExportSequenceRequest request;
  request.set_name(name);
  request.set_file(file);
  const auto response = impl_->Call(&Stub::Export, request, name);
  if (!response.ok()) return response.status();
  return response->bytes();
}

absl::StatusOr<ImportedSequence> Client::ImportSequence(
    const SequenceImport& import) const {
  const auto response =
      impl_->Call(&Stub::Import, ToProto(import), import.name);
  if (!response.ok()) return response.status();
  return ImportedSequence{
      response->name(),
      {response->lengths().begin(), response->lengths().end()},
      response->incarnation()};
}

}  // namespace attention::client
