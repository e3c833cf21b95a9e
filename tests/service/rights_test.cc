// What only some callers may do: shared memory and the control of models.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "inference/grpc_service.pb.h"
#include "tests/service/callers_of_test.h"
#include "tests/service/gated_server.h"
#include "tests/service/tls_files.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"

namespace attention::test {
namespace {

using absl::StatusCode;

const std::string kPrefix = "/inference.GRPCInferenceService/";

// "may" has both rights, "no" has none.
class RightsTest : public testing::Test {
 protected:
  RightsTest() {
    files_.Write("callers.json",
                 CallersText(CallerEntry("may", "may",
                                         R"(, "may": ["shared_memory",
                                                      "model_control"])") +
                             "," + CallerEntry("no", "no")));
    options_.callers_file = files_.Path("callers.json");
    options_.allow_shared_memory = true;
    options_.allow_model_control = true;
    options_.model_repository = files_.Path("models");
    std::filesystem::create_directory(options_.model_repository);
  }

  absl::Status Call(const std::string& token, const std::string& method,
                    const google::protobuf::MessageLite& request) {
    if (server_ == nullptr) server_ = StartServer(options_);
    WireClient client(server_->address(), "Bearer " + token);
    return client.Call(kPrefix + method, request.SerializeAsString()).status();
  }

  TlsFiles files_;
  server::ServerOptions options_ = TestOptions();
  std::unique_ptr<server::Server> server_;
};

TEST_F(RightsTest, SharedMemoryIsForThoseWhoMay) {
  inference::SystemSharedMemoryRegisterRequest request;
  request.set_name("region");
  request.set_key("/attention_rights_test_is_not_there");
  request.set_byte_size(8);
  ExpectRefusal(Call("no", "SystemSharedMemoryRegister", request),
                StatusCode::kPermissionDenied,
                {"the caller no", "shared_memory"});
  // This one is allowed to try.
  EXPECT_NE(Call("may", "SystemSharedMemoryRegister", request).code(),
            StatusCode::kPermissionDenied);
  for (const char* method :
       {"SystemSharedMemoryStatus", "SystemSharedMemoryUnregister",
        "CudaSharedMemoryStatus", "CudaSharedMemoryRegister",
        "CudaSharedMemoryUnregister"}) {
    EXPECT_EQ(Call("no", method, inference::ServerLiveRequest()).code(),
              StatusCode::kPermissionDenied)
        << method;
  }
}

TEST_F(RightsTest, TensorsInSharedMemoryAreForThoseWhoMay) {
  inference::ModelInferRequest request;
  request.set_model_name("scaled_dot_product_attention");
  auto& input = *request.add_inputs();
  input.set_name("query");
  input.set_datatype("FP32");
  input.add_shape(1);
  input.add_shape(1);
  auto& parameters = *input.mutable_parameters();
  parameters["shared_memory_region"].set_string_param("region");
  parameters["shared_memory_byte_size"].set_int64_param(4);
  ExpectRefusal(Call("no", "ModelInfer", request),
                StatusCode::kPermissionDenied, {"query.shared_memory_region"});
  EXPECT_EQ(Call("may", "ModelInfer", request).code(), StatusCode::kNotFound);
}

TEST_F(RightsTest, ModelControlIsForThoseWhoMay) {
  inference::RepositoryModelLoadRequest request;
  request.set_model_name("nobody");
  for (const char* method : {"RepositoryModelLoad", "RepositoryModelUnload"}) {
    ExpectRefusal(Call("no", method, request), StatusCode::kPermissionDenied,
                  {"the caller no", "model_control"});
    EXPECT_NE(Call("may", method, request).code(),
              StatusCode::kPermissionDenied);
  }
  // To look is for everybody.
  EXPECT_EQ(Call("no", "RepositoryIndex", inference::ServerLiveRequest()),
            absl::OkStatus());
}

TEST_F(RightsTest, ARightSwitchesNothingOn) {
  options_.allow_shared_memory = false;
  options_.allow_model_control = false;
  inference::SystemSharedMemoryRegisterRequest memory;
  ExpectRefusal(Call("may", "SystemSharedMemoryRegister", memory),
                StatusCode::kUnavailable, {"", "--allow-shared-memory"});
  inference::RepositoryModelLoadRequest model;
  ExpectRefusal(Call("may", "RepositoryModelLoad", model),
                StatusCode::kUnavailable, {"", "--allow-model-control"});
}

}  // namespace
}  // namespace attention::test
