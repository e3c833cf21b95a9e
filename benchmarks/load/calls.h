#ifndef ATTENTION_BENCHMARKS_LOAD_CALLS_H_
#define ATTENTION_BENCHMARKS_LOAD_CALLS_H_

#include <grpcpp/channel.h>
#include <grpcpp/completion_queue.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "attention_client/client.h"
#include "benchmarks/load/api.h"

namespace attention::bench {

/// In place of a slot: no call will end any more.
inline constexpr int kConnectionLost = -1;

/// A call that has ended.
struct Ended {
  int slot = 0;
  absl::StatusOr<ReplyFacts> reply;
};

/// Calls under way over one connection, each in a slot of its own: unary calls,
/// or messages of one stream. Everything happens on the thread that calls it.
class Calls {
 public:
  virtual ~Calls() = default;
  /// Begins the call of a free slot; a unary call ends by `deadline`.
  virtual void Start(int slot,
                     std::chrono::system_clock::time_point deadline) = 0;
  /// What an event of the completion queue means; often nothing.
  virtual std::optional<Ended> OnEvent(void* tag, bool ok) = 0;
  /// Ends what is left, when no call is under way.
  virtual void Close() {}
  /// Has what is under way end soon.
  virtual void Cancel() = 0;
};

/// A connection of its own to the server that `options` name, with no limit to
/// messages.
std::unique_ptr<Calls> MakeUnaryCalls(const client::ClientOptions& options,
                                      grpc::CompletionQueue& queue,
                                      const Api& api, int slots);
/// The stream is open when it returns.
std::unique_ptr<Calls> MakeStreamCalls(const client::ClientOptions& options,
                                       grpc::CompletionQueue& queue,
                                       const Api& api, int slots);
/// What both connect with: credentials that Create() of a client let pass.
std::shared_ptr<grpc::Channel> Connect(const client::ClientOptions& options);

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_LOAD_CALLS_H_
