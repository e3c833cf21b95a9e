#ifndef ATTENTION_SERVER_SERVICES_KEY_VALUE_SERVICE_H_
#define ATTENTION_SERVER_SERVICES_KEY_VALUE_SERVICE_H_

#include <functional>
#include <string>

#include "attention/v1/attention.grpc.pb.h"
#include "server/resident/resident_store.h"
#include "server/scheduling/active_calls.h"
#include "server/scheduling/serial_queue.h"
#include "server/scheduling/task.h"

namespace attention::server {

// Methods with tensors are raw, the others come as messages.
namespace key_value_methods {
using Kv = v1::KeyValueService;
using FileMethods =
    Kv::WithCallbackMethod_Export<Kv::WithCallbackMethod_Import<Kv::Service>>;
using ListMethods = Kv::WithCallbackMethod_Describe<
    Kv::WithCallbackMethod_List<Kv::WithCallbackMethod_Delete<FileMethods>>>;
using ChangeMethods = Kv::WithCallbackMethod_Create<
    Kv::WithCallbackMethod_Truncate<Kv::WithCallbackMethod_Fork<ListMethods>>>;
using AllMethods = Kv::WithRawCallbackMethod_Append<ChangeMethods>;
}  // namespace key_value_methods

/// attention.v1.KeyValueService (proto/attention/v1/attention.proto says what
/// each method does), over the server's store.
class KeyValueService final : public key_value_methods::AllMethods {
 public:
  /// The arguments outlive the service. `files` is the turns in which files are
  /// written and read.
  KeyValueService(const TaskServices& services, ActiveCalls& calls,
                  ResidentStore& resident, SerialQueue& files)
      : services_(services),
        calls_(calls),
        resident_(resident),
        files_(files) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;

  Reactor* Append(Context* context, const grpc::ByteBuffer* request,
                  grpc::ByteBuffer* response) override;

  Reactor* Create(Context* context, const v1::CreateSequencesRequest* request,
                  v1::CreateSequencesResponse* response) override;
  Reactor* Truncate(Context* context, const v1::TruncateRequest* request,
                    v1::TruncateResponse* response) override;
  Reactor* Fork(Context* context, const v1::ForkRequest* request,
                v1::ForkResponse* response) override;
  Reactor* Describe(Context* context,
                    const v1::DescribeSequenceRequest* request,
                    v1::SequenceDescription* response) override;
  Reactor* List(Context* context, const v1::ListSequencesRequest* request,
                v1::ListSequencesResponse* response) override;
  Reactor* Delete(Context* context, const v1::DeleteSequencesRequest* request,
                  v1::DeleteSequencesResponse* response) override;
  Reactor* Export(Context* context, const v1::ExportSequenceRequest* request,
                  v1::ExportSequenceResponse* response) override;
  Reactor* Import(Context* context, const v1::ImportSequenceRequest* request,
                  v1::ImportSequenceResponse* response) override;

 private:
  using Work = std::function<absl::Status(const std::string& owner)>;
  // Answers a known caller with what `work` returns, at once or when it is the
  // call's turn on the thread of files. gRPC keeps the call, with its request
  // and its response, until it is answered.
  Reactor* Ask(Context* context, const Work& work);
  Reactor* AskInTurn(Context* context, Work work);

  absl::Status WriteFile(const std::string& owner,
                         const v1::ExportSequenceRequest& request,
                         v1::ExportSequenceResponse& response);
  absl::Status ReadFile(const std::string& owner,
                        const v1::ImportSequenceRequest& request,
                        v1::ImportSequenceResponse& response);

  store::Store& store() { return resident_.store(); }

  const TaskServices services_;
  ActiveCalls& calls_;
  ResidentStore& resident_;
  SerialQueue& files_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_KEY_VALUE_SERVICE_H_
