#include <grpcpp/create_channel.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/channel_arguments.h>

#include <utility>
#include <vector>

#include "benchmarks/load/calls.h"
#include "client/cpp/src/security.h"
#include "client/cpp/src/status.h"

namespace attention::bench {
namespace {

class UnaryCalls final : public Calls {
 public:
  UnaryCalls(const client::ClientOptions& options, grpc::CompletionQueue& queue,
             const Api& api, int slots)
      : options_(options),
        stub_(Connect(options)),
        queue_(queue),
        api_(api),
        slots_(static_cast<size_t>(slots)) {}

  void Start(int slot,
             std::chrono::system_clock::time_point deadline) override {
    Slot& call = slots_[static_cast<size_t>(slot)];
    call.context.emplace();
    call.context->set_deadline(deadline);
    client::AddToken(options_, *call.context);
    call.reader = stub_.PrepareUnaryCall(&*call.context, api_.unary_method(),
                                         api_.Encode(""), &queue_);
    call.reader->StartCall();
    call.reader->Finish(&call.reply, &call.status, &call);
  }

  void Cancel() override {
    for (Slot& slot : slots_) {
      if (slot.context) slot.context->TryCancel();
    }
  }

  std::optional<Ended> OnEvent(void* tag, bool) override {
    Slot& call = *static_cast<Slot*>(tag);
    const auto slot = static_cast<int>(&call - slots_.data());
    if (!call.status.ok()) {
      return Ended{slot, client::ToAbslStatus(call.status)};
    }
    absl::StatusOr<ReplyFacts> facts = api_.DecodeUnary(call.reply);
    call.reply.Clear();
    return Ended{slot, std::move(facts)};
  }

 private:
  struct Slot {
    std::optional<grpc::ClientContext> context;
    std::unique_ptr<grpc::GenericClientAsyncResponseReader> reader;
    grpc::ByteBuffer reply;
    grpc::Status status;
  };

  const client::ClientOptions options_;
  grpc::GenericStub stub_;
  grpc::CompletionQueue& queue_;
  const Api& api_;
  std::vector<Slot> slots_;
};

}  // namespace

std::shared_ptr<grpc::Channel> Connect(const client::ClientOptions& options) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  client::SetSecurity(options, arguments);
  return grpc::CreateCustomChannel(
      options.target, client::MakeCredentials(options).value(), arguments);
}

std::unique_ptr<Calls> MakeUnaryCalls(const client::ClientOptions& options,
                                      grpc::CompletionQueue& queue,
                                      const Api& api, int slots) {
  return std::make_unique<UnaryCalls>(options, queue, api, slots);
}

}  // namespace attention::bench
