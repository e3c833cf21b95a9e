#include <fcntl.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>
#include <grpcpp/client_context.h>
#include <grpcpp/support/proto_buffer_reader.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/load/api.h"
#include "benchmarks/load/calls.h"
#include "client/cpp/src/security.h"
#include "client/cpp/src/status.h"
#include "inference/grpc_service.grpc.pb.h"

namespace attention::bench {
namespace {

namespace pb = google::protobuf;
using Stub = inference::GRPCInferenceService::Stub;

constexpr char kModel[] = "scaled_dot_product_attention";
constexpr const char* kInputs[] = {"query", "key", "value"};

// A shared-memory object of this process, filled with zeros and gone at its
// end.
class SharedMemory {
 public:
  static absl::StatusOr<std::unique_ptr<SharedMemory>> Create(int64_t bytes) {
    auto memory = std::make_unique<SharedMemory>();
    memory->name_ = absl::StrCat("/attention-load-", ::getpid());
    const int file = ::shm_open(memory->name_.c_str(),
                                O_CREAT | O_EXCL | O_RDWR, S_IRUSR | S_IWUSR);
    if (file < 0) return absl::UnavailableError("no shared memory");
    memory->size_ = static_cast<size_t>(bytes);
    const bool sized = ::ftruncate(file, bytes) == 0;
    void* address = ::mmap(nullptr, memory->size_, PROT_READ | PROT_WRITE,
                           MAP_SHARED, file, 0);
    ::close(file);
    if (!sized || address == MAP_FAILED) {
      return absl::ResourceExhaustedError("no shared memory of that size");
    }
    memory->address_ = static_cast<std::byte*>(address);
    return memory;
  }
  SharedMemory() = default;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory() {
    if (address_ != nullptr) ::munmap(address_, size_);
    ::shm_unlink(name_.c_str());
  }

  const std::string& name() const { return name_; }
  std::byte* address() const { return address_; }

 private:
  std::string name_;
  std::byte* address_ = nullptr;
  size_t size_ = 0;
};

template <typename Parameters>
void SetRegion(const std::string& region, int64_t offset, int64_t size,
               Parameters& parameters) {
  parameters["shared_memory_region"].set_string_param(region);
  parameters["shared_memory_offset"].set_int64_param(offset);
  parameters["shared_memory_byte_size"].set_int64_param(size);
}

class InferenceApi final : public Api {
 public:
  InferenceApi(const LoadShape& shape, std::vector<Tensor> inputs)
      : size_(shape.TensorBytes()), inputs_(std::move(inputs)) {
    fields_.set_model_name(kModel);
    for (const char* name : kInputs) {
      auto& input = *fields_.add_inputs();
      input.set_name(name);
      input.set_datatype(shape.type);
      for (const int64_t extent :
           {shape.batch, shape.heads, shape.length, shape.width}) {
        input.add_shape(extent);
      }
    }
  }
  ~InferenceApi() override {
    if (memory_ == nullptr) return;
    grpc::ClientContext context;
    client::AddToken(server_, context);
    inference::SystemSharedMemoryUnregisterRequest request;
    inference::SystemSharedMemoryUnregisterResponse response;
    request.set_name(memory_->name().substr(1));
    (void)stub_->SystemSharedMemoryUnregister(&context, request, &response);
  }

  // Puts the inputs into a region of shared memory that the server then knows;
  // every call writes its output to the same place behind them.
  absl::Status ShareMemory(const client::ClientOptions& server) {
    auto memory = SharedMemory::Create(4 * size_);
    if (!memory.ok()) return memory.status();
    const std::string region = (*memory)->name().substr(1);
    for (int i = 0; i < 3; ++i) {
      std::memcpy((*memory)->address() + i * size_, inputs_[i].data(),
                  static_cast<size_t>(size_));
      SetRegion(region, i * size_, size_,
                *fields_.mutable_inputs(i)->mutable_parameters());
    }
    auto& output = *fields_.add_outputs();
    output.set_name("output");
    SetRegion(region, 3 * size_, size_, *output.mutable_parameters());
    inputs_.clear();
    server_ = server;
    stub_ = std::make_unique<Stub>(Connect(server_));
    grpc::ClientContext context;
    client::AddToken(server_, context);
    inference::SystemSharedMemoryRegisterRequest request;
    inference::SystemSharedMemoryRegisterResponse response;
    request.set_name(region);
    request.set_key((*memory)->name());
    request.set_byte_size(static_cast<uint64_t>(4 * size_));
    memory_ = *std::move(memory);
    return client::ToAbslStatus(
        stub_->SystemSharedMemoryRegister(&context, request, &response));
  }

  const char* unary_method() const override {
    return "/inference.GRPCInferenceService/ModelInfer";
  }
  const char* stream_method() const override {
    return "/inference.GRPCInferenceService/ModelStreamInfer";
  }

  // The message but for its raw contents, and those as they lie.
  grpc::ByteBuffer Encode(const std::string& id) const override {
    inference::ModelInferRequest message = fields_;
    message.set_id(id);
    std::string text = message.SerializeAsString();
    std::vector<grpc::Slice> slices;
    for (const Tensor& input : inputs_) {
      text += RawHeader();
      slices.emplace_back(std::exchange(text, {}));
      // The inputs outlive every call.
      slices.emplace_back(input.data(), static_cast<size_t>(size_),
                          grpc::Slice::STATIC_SLICE);
    }
    if (!text.empty()) slices.emplace_back(text);
    return {slices.data(), slices.size()};
  }

  absl::StatusOr<ReplyFacts> DecodeUnary(
      grpc::ByteBuffer& message) const override {
    inference::ModelInferResponse reply;
    if (!Parse(message, reply)) return NotAReply();
    return Facts(reply);
  }
  absl::StatusOr<ReplyFacts> DecodeStream(
      grpc::ByteBuffer& message) const override {
    inference::ModelStreamInferResponse reply;
    if (!Parse(message, reply)) return NotAReply();
    if (!reply.error_message().empty()) {
      return absl::UnknownError(reply.error_message());
    }
    return Facts(reply.infer_response());
  }

 private:
  std::string RawHeader() const {
    using Wire = pb::internal::WireFormatLite;
    uint8_t header[20];
    uint8_t* end = pb::io::CodedOutputStream::WriteVarint32ToArray(
        Wire::MakeTag(
            inference::ModelInferRequest::kRawInputContentsFieldNumber,
            Wire::WIRETYPE_LENGTH_DELIMITED),
        header);
    end = pb::io::CodedOutputStream::WriteVarint64ToArray(
        static_cast<uint64_t>(size_), end);
    return {header, end};
  }

  static bool Parse(grpc::ByteBuffer& message, pb::MessageLite& reply) {
    grpc::ProtoBufferReader stream(&message);
    return reply.ParseFromZeroCopyStream(&stream);
  }
  static absl::Status NotAReply() {
    return absl::InternalError("the bytes are not a reply");
  }

  absl::StatusOr<ReplyFacts> Facts(
      const inference::ModelInferResponse& reply) const {
    const bool raw =
        reply.raw_output_contents_size() == 1 &&
        reply.raw_output_contents(0).size() == static_cast<size_t>(size_);
    if (memory_ == nullptr && !raw) {
      return absl::InternalError("the reply has no output");
    }
    return ReplyFacts{reply.id(), {}, {}};
  }

  const int64_t size_;
  inference::ModelInferRequest fields_;
  std::vector<Tensor> inputs_;
  client::ClientOptions server_;  // that shares the memory
  std::unique_ptr<SharedMemory> memory_;
  std::unique_ptr<Stub> stub_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Api>> MakeInferenceApi(
    const LoadShape& shape,
    const std::optional<client::ClientOptions>& shared_memory_server) {
  absl::StatusOr<std::vector<Tensor>> inputs = RandomInputs(shape);
  if (!inputs.ok()) return inputs.status();
  auto api = std::make_unique<InferenceApi>(shape, *std::move(inputs));
  if (shared_memory_server) {
    absl::Status shared = api->ShareMemory(*shared_memory_server);
    if (!shared.ok()) return shared;
  }
  return api;
}

}  // namespace attention::bench
