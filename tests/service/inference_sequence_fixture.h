#ifndef ATTENTION_TESTS_SERVICE_INFERENCE_SEQUENCE_FIXTURE_H_
#define ATTENTION_TESTS_SERVICE_INFERENCE_SEQUENCE_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/service/gated_server.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

/// A server, and requests of the sequence extension.
namespace attention::test {

/// Rows `first` to `last` - 1 of something that differs from row to row.
inline v1::Tensor RowsOfStep(int64_t first, int64_t last, double factor,
                             int64_t batch = 1) {
  std::vector<double> values;
  for (int64_t entry = 0; entry < batch; ++entry) {
    for (int64_t n = first; n < last; ++n) {
      values.push_back(static_cast<double>(n % 4) * factor);
      values.push_back(1 - static_cast<double>(n));
    }
  }
  return Floats({batch, 1, last - first, 2}, values);
}

/// One query, and the keys and values from `first` to `last` - 1.
inline inference::ModelInferRequest Step(int64_t first, int64_t last,
                                         int64_t batch = 1) {
  v1::AttendRequest request;
  *request.mutable_query() = RowsOfStep(last, last + 1, 0.5, batch);
  *request.mutable_key_value()->mutable_key() =
      RowsOfStep(first, last, 0.25, batch);
  *request.mutable_key_value()->mutable_value() =
      RowsOfStep(first, last, 2, batch);
  inference::ModelInferRequest infer = ToInfer(request);
  infer.set_id(absl::StrCat(last));
  return infer;
}

enum class At : uint8_t { kStart, kMiddle, kEnd };

inline inference::ModelInferRequest OfSequence(
    inference::ModelInferRequest request, int64_t id, At at) {
  auto& parameters = *request.mutable_parameters();
  parameters["sequence_id"].set_int64_param(id);
  parameters["sequence_start"].set_bool_param(at == At::kStart);
  parameters["sequence_end"].set_bool_param(at == At::kEnd);
  return request;
}

/// A server whose store has room for some 60,000 keys of these.
inline server::ServerOptions SmallStore() {
  server::ServerOptions options = TestOptions();
  options.resident_memory_limit = int64_t{1} << 20;
  options.resident_evict = true;
  return options;
}

/// All sequences that the store has.
inline v1::ListSequencesResponse SequencesIn(WireClient& client) {
  const auto bytes =
      client.Call("/attention.v1.KeyValueService/List",
                  v1::ListSequencesRequest().SerializeAsString());
  EXPECT_EQ(bytes.status(), absl::OkStatus());
  v1::ListSequencesResponse list;
  EXPECT_TRUE(bytes.ok() && list.ParseFromString(*bytes));
  return list;
}

/// A server whose tiles wait from the `first_held` on, until its gate opens.
struct GatedSequences {
  explicit GatedSequences(int64_t first_held) {
    gate.CloseAt(first_held);
    server = StartServer(TestOptions(), &gate);
    client = std::make_unique<WireClient>(server->address());
  }
  std::unique_ptr<PendingCall> Send(
      const inference::ModelInferRequest& request) const {
    return client->Start(kModelInfer, request.SerializeAsString());
  }

  TileGate gate;
  std::unique_ptr<server::Server> server;
  std::unique_ptr<WireClient> client;
};

class InferSequenceTest : public testing::Test {
 protected:
  std::string OutputOf(const inference::ModelInferRequest& request) {
    return OutputOf(request, client_);
  }
  static std::string OutputOf(const inference::ModelInferRequest& request,
                              WireClient& client) {
    const auto response = Infer(client, request);
    EXPECT_EQ(response.status(), absl::OkStatus());
    return response.ok() ? response->raw_output_contents(0) : "";
  }

  std::unique_ptr<server::Server> server_ = StartServer();
  WireClient client_{server_->address()};
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_INFERENCE_SEQUENCE_FIXTURE_H_
