#include <grpcpp/client_context.h>
#include <grpcpp/generic/generic_stub.h>

#include <cstdlib>
#include <deque>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "benchmarks/load/calls.h"
#include "client/cpp/src/security.h"

namespace attention::bench {
namespace {

// Larger messages leave at once; smaller ones wait for those behind them.
constexpr size_t kMostBytesHeldBack = 16 << 10;

class StreamCalls final : public Calls {
 public:
  StreamCalls(const client::ClientOptions& options,
              grpc::CompletionQueue& queue, const Api& api)
      : queue_(queue), api_(api), stub_(Connect(options)) {
    client::AddToken(options, context_);
    stream_ = stub_.PrepareCall(&context_, api.stream_method(), &queue);
    stream_->StartCall(&start_);
    Await(&start_);
    Read();
  }

  void Start(int slot, std::chrono::system_clock::time_point) override {
    waiting_.push_back(slot);
    if (!writing_) Write();
  }

  std::optional<Ended> OnEvent(void* tag, bool ok) override {
    if (tag == &write_) {
      writing_ = false;
      if (!waiting_.empty()) Write();
      return std::nullopt;
    }
    if (!ok) {
      return Ended{kConnectionLost,
                   absl::UnavailableError("the stream has ended")};
    }
    absl::StatusOr<ReplyFacts> facts = api_.DecodeStream(incoming_);
    incoming_.Clear();
    Read();
    int slot = 0;
    if (!facts.ok()) return Ended{kConnectionLost, facts.status()};
    if (!absl::SimpleAtoi(facts->id, &slot)) {
      return Ended{kConnectionLost,
                   absl::InternalError("a reply to no request")};
    }
    return Ended{slot, std::move(facts)};
  }

  void Cancel() override { context_.TryCancel(); }

  void Close() override {
    stream_->WritesDone(&write_);
    grpc::Status status;
    void* tag = nullptr;
    bool ok = true;
    // The write, the read that finds the end, then the status.
    for (int i = 0; i < 2; ++i) queue_.Next(&tag, &ok);
    stream_->Finish(&status, &start_);
    Await(&start_);
  }

 private:
  void Await(const void* expected) {
    void* tag = nullptr;
    bool ok = false;
    do {
      queue_.Next(&tag, &ok);
    } while (tag != expected);
  }

  void Read() { stream_->Read(&incoming_, &read_); }

  void Write() {
    writing_ = true;
    const grpc::ByteBuffer message =
        api_.Encode(absl::StrCat(waiting_.front()));
    waiting_.pop_front();
    grpc::WriteOptions options;
    if (!waiting_.empty() && message.Length() < kMostBytesHeldBack) {
      options.set_buffer_hint();
    }
    stream_->Write(message, options, &write_);
  }

  grpc::CompletionQueue& queue_;
  const Api& api_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::GenericClientAsyncReaderWriter> stream_;
  std::deque<int> waiting_;  // to be written
  bool writing_ = false;
  grpc::ByteBuffer incoming_;
  char start_ = 0, read_ = 0, write_ = 0;  // whose addresses are the tags
};

}  // namespace

std::unique_ptr<Calls> MakeStreamCalls(const client::ClientOptions& options,
                                       grpc::CompletionQueue& queue,
                                       const Api& api, int) {
  return std::make_unique<StreamCalls>(options, queue, api);
}

}  // namespace attention::bench
