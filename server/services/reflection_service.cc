#include "server/services/reflection_service.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/message.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/services/request_stream.h"

namespace attention::server {
namespace {

namespace pb = ::google::protobuf;
using Request = grpc::reflection::v1::ServerReflectionRequest;
using Response = grpc::reflection::v1::ServerReflectionResponse;

// protobuf looks up each part of a name that has dots, which takes the square
// of the name's length; ours have less than 100 bytes. Answers hold the request
// and the name once more.
constexpr size_t kMostRequestBytes = 1024;

void SetNotFound(const std::string& what, Response& response) {
  auto& error = *response.mutable_error_response();
  error.set_error_code(grpc::StatusCode::NOT_FOUND);
  error.set_error_message(absl::StrCat(what, " is not known here"));
}

// A file and those that it imports, each once.
void AddFiles(const pb::FileDescriptor& file,
              std::unordered_set<const pb::FileDescriptor*>& added,
              Response& response) {
  if (!added.insert(&file).second) return;
  pb::FileDescriptorProto description;
  file.CopyTo(&description);
  response.mutable_file_descriptor_response()->add_file_descriptor_proto(
      description.SerializeAsString());
  for (int i = 0; i < file.dependency_count(); ++i) {
    AddFiles(*file.dependency(i), added, response);
  }
}

void SetFile(const pb::FileDescriptor* file, const std::string& asked,
             Response& response) {
  if (file == nullptr) return SetNotFound(asked, response);
  std::unordered_set<const pb::FileDescriptor*> added;
  AddFiles(*file, added, response);
}

void SetExtensions(const pb::DescriptorPool& pool, const std::string& type,
                   Response& response) {
  const pb::Descriptor* base = pool.FindMessageTypeByName(type);
  if (base == nullptr) return SetNotFound(type, response);
  std::vector<const pb::FieldDescriptor*> extensions;
  pool.FindAllExtensions(base, &extensions);
  auto& numbers = *response.mutable_all_extension_numbers_response();
  numbers.set_base_type_name(type);
  for (const auto* extension : extensions) {
    numbers.add_extension_number(extension->number());
  }
}

}  // namespace

Reflection::Reflection(std::vector<std::string> services,
                       const ActiveCalls& calls)
    : services_(std::move(services)), calls_(calls) {
  // Nothing else uses these messages, so the linker would leave them out.
  pb::LinkMessageReflection<
      grpc::reflection::v1alpha::ServerReflectionRequest>();
}

Response Reflection::Answer(const Request& request) const {
  const pb::DescriptorPool& pool = *pb::DescriptorPool::generated_pool();
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Request::kFileByFilename: {
      const std::string& name = request.file_by_filename();
      SetFile(pool.FindFileByName(name), name, response);
      break;
    }
    case Request::kFileContainingSymbol: {
      const std::string& name = request.file_containing_symbol();
      SetFile(pool.FindFileContainingSymbol(name), name, response);
      break;
    }
    case Request::kFileContainingExtension: {
      const auto& asked = request.file_containing_extension();
      const auto* type = pool.FindMessageTypeByName(asked.containing_type());
      const auto* field = type == nullptr ? nullptr
                                          : pool.FindExtensionByNumber(
                                                type, asked.extension_number());
      SetFile(field == nullptr ? nullptr : field->file(),
              asked.containing_type(), response);
      break;
    }
    case Request::kAllExtensionNumbersOfType:
      SetExtensions(pool, request.all_extension_numbers_of_type(), response);
      break;
    case Request::kListServices:
      for (const std::string& name : services_) {
        response.mutable_list_services_response()->add_service()->set_name(
            name);
      }
      break;
    case Request::MESSAGE_REQUEST_NOT_SET: {
      auto& error = *response.mutable_error_response();
      error.set_error_code(grpc::StatusCode::INVALID_ARGUMENT);
      error.set_error_message("message_request: not set");
      break;
    }
  }
  return response;
}

// Reads a request, writes its answer, and so on: at any time one of the two is
// under way, and what ends it ends the stream.
class Reflection::Stream final : public Reactor {
 public:
  Stream(Reflection& owner, grpc::CallbackServerContext& context)
      : owner_(owner), context_(context) {
    StartRead(&message_);
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    {
      const std::lock_guard lock(owner_.mutex_);
      owner_.streams_.splice(owner_.streams_.end(), owner_.streams_, place_);
    }
    if (message_.Length() > kMostRequestBytes) {
      return Finish(
          {grpc::StatusCode::INVALID_ARGUMENT,
           absl::StrCat("the ServerReflectionRequest takes ", message_.Length(),
                        " bytes (expected: at most ", kMostRequestBytes, ")")});
    }
    Request request;
    grpc::Status status =
        grpc::SerializationTraits<Request>::Deserialize(&message_, &request);
    if (!status.ok()) {
      return Finish({grpc::StatusCode::INVALID_ARGUMENT,
                     "expected a grpc.reflection.v1.ServerReflectionRequest"});
    }
    bool owned = false;
    status = grpc::SerializationTraits<Response>::Serialize(
        owner_.Answer(request), &message_, &owned);
    if (!status.ok()) return Finish(status);
    StartWrite(&message_);
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return Finish(grpc::Status::OK);
    StartRead(&message_);
  }

  void OnDone() override {
    {
      const std::lock_guard lock(owner_.mutex_);
      owner_.streams_.erase(place_);
    }
    delete this;
  }

 private:
  friend class Reflection;

  Reflection& owner_;
  grpc::CallbackServerContext& context_;  // lives until OnDone()
  std::list<Stream*>::iterator place_;
  grpc::ByteBuffer message_;
};

Reflection::Reactor* Reflection::Begin(grpc::CallbackServerContext& context) {
  const absl::Status room = calls_.CheckRoom(context.peer());
  if (!room.ok()) return RequestStream::Refuse(room);
  auto* stream = new Stream(*this, context);
  const std::lock_guard lock(mutex_);
  if (streams_.size() >= kMostStreams) {
    streams_.front()->context_.TryCancel();
    // It is there until gRPC has ended it; the next one ends another.
    streams_.splice(streams_.end(), streams_, streams_.begin());
  }
  stream->place_ = streams_.insert(streams_.end(), stream);
  return stream;
}

}  // namespace attention::server
