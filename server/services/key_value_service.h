#ifndef ATTENTION_SERVER_SERVICES_KEY_VALUE_SERVICE_H_
#define ATTENTION_SERVER_SERVICES_KEY_VALUE_SERVICE_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "attention/v1/attention.grpc.pb.h"
#include "server/callers/caller.h"
#include "server/options/options.h"
#include "server/request/sequence_files.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/serial_queue.h"
#include "server/scheduling/task.h"
#include "server/services/caller_of_call.h"

namespace attention::server {

// All methods are raw: what is no message, or has text that is not UTF-8, gets
// gRPC's UNIMPLEMENTED otherwise.
namespace key_value_methods {
using Kv = v1::KeyValueService;
using FileMethods = Kv::WithRawCallbackMethod_Export<
    Kv::WithRawCallbackMethod_Import<Kv::Service>>;
using ListMethods =
    Kv::WithRawCallbackMethod_Describe<Kv::WithRawCallbackMethod_List<
        Kv::WithRawCallbackMethod_Delete<FileMethods>>>;
using ChangeMethods =
    Kv::WithRawCallbackMethod_Create<Kv::WithRawCallbackMethod_Truncate<
        Kv::WithRawCallbackMethod_Fork<ListMethods>>>;
using AllMethods = Kv::WithRawCallbackMethod_Append<ChangeMethods>;
}  // namespace key_value_methods

/// attention.v1.KeyValueService (proto/attention/v1/attention.proto says what
/// each method does), over the server's store.
class KeyValueService final : public key_value_methods::AllMethods {
 public:
  /// The arguments outlive the service. `files` is the turns in which files are
  /// written and read.
  KeyValueService(const ServerOptions& options, const TaskServices& services,
                  ActiveCalls& calls, ResidentStore& resident,
                  SerialQueue& files)
      : options_(options),
        services_(services),
        calls_(calls),
        resident_(resident),
        files_(files) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* Append(Context* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;

  Reactor* Create(Context* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;
  Reactor* Truncate(Context* context, const grpc::ByteBuffer* request,
                    grpc::ByteBuffer* response) override;
  Reactor* Fork(Context* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;
  Reactor* Describe(Context* context, const grpc::ByteBuffer* request,
                    grpc::ByteBuffer* response) override;
  Reactor* List(Context* context, const grpc::ByteBuffer* request,
                grpc::ByteBuffer* response) override;
  Reactor* Delete(Context* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;
  Reactor* Export(Context* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;
  Reactor* Import(Context* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;

 private:
  // What a method does for an owner.
  template <typename Request, typename Response>
  using Work = absl::Status (KeyValueService::*)(const std::string& owner,
                                                 const Request& request,
                                                 Response& response);
  // The same with a file, as long as it may go on.
  template <typename Request, typename Response>
  using WorkOnFile = absl::Status (KeyValueService::*)(const std::string& owner,
                                                       const Request& request,
                                                       GoOn go_on,
                                                       Response& response);
  // Who calls, and for what.
  template <typename Request>
  struct Asked {
    CallerPtr caller;
    std::string owner;
    Request message;
  };
  // Of a known caller, who has the right where one is needed.
  template <typename Request>
  absl::StatusOr<Asked<Request>> Read(const Context& context,
                                      const grpc::ByteBuffer& request,
                                      std::optional<Right> right = {}) const;
  // Answers a known caller, at once or when it is the call's turn on the thread
  // of files. gRPC keeps the call, with its request and its response, until it
  // is answered.
  template <typename Request, typename Response>
  Reactor* Ask(Context* context, const grpc::ByteBuffer& request,
               grpc::ByteBuffer& response, Work<Request, Response> work);
  template <typename Request, typename Response>
  Reactor* AskInTurn(Context* context, const grpc::ByteBuffer& request,
                     grpc::ByteBuffer& response,
                     WorkOnFile<Request, Response> work);

  absl::Status CreateFor(const std::string& owner,
                         const v1::CreateSequencesRequest& request,
                         v1::CreateSequencesResponse& response);
  // Whether Truncate() would wait for somebody who appends.
  bool IsChanging(const std::string& owner, const std::string& name);
  // OK: it is answered on a worker.
  absl::Status TruncateInTurn(Context& context,
                              Asked<v1::TruncateRequest> asked,
                              Reactor& reactor);
  absl::Status TruncateFor(const std::string& owner,
                           const v1::TruncateRequest& request);
  absl::Status ForkFor(const std::string& owner, const v1::ForkRequest& request,
                       v1::ForkResponse& response);
  absl::Status DescribeFor(const std::string& owner,
                           const v1::DescribeSequenceRequest& request,
                           v1::SequenceDescription& response);
  absl::Status ListFor(const std::string& owner,
                       const v1::ListSequencesRequest& request,
                       v1::ListSequencesResponse& response);
  absl::Status DeleteFor(const std::string& owner,
                         const v1::DeleteSequencesRequest& request,
                         v1::DeleteSequencesResponse& response);
  absl::Status WriteFile(const std::string& owner,
                         const v1::ExportSequenceRequest& request, GoOn go_on,
                         v1::ExportSequenceResponse& response);
  absl::Status ReadFile(const std::string& owner,
                        const v1::ImportSequenceRequest& request, GoOn go_on,
                        v1::ImportSequenceResponse& response);

  store::Store& store() { return resident_.store(); }

  const ServerOptions& options_;
  const TaskServices services_;
  ActiveCalls& calls_;
  ResidentStore& resident_;
  SerialQueue& files_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_KEY_VALUE_SERVICE_H_
