#ifndef ATTENTION_TESTS_SERVICE_SEQUENCES_FIXTURE_H_
#define ATTENTION_TESTS_SERVICE_SEQUENCES_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"

/// A server, and requests about sequences of one head and width 2.
namespace attention::test {

inline const std::string kService = "/attention.v1.KeyValueService/";

// One head, width 2; keys and values are numbers by their position.
inline v1::Tensor RowsOf(int64_t first, int64_t count, double step = 1) {
  std::vector<double> values;
  for (int64_t n = first; n < first + count; ++n) {
    values.push_back(static_cast<double>(n % 7) * step);
    values.push_back(static_cast<double>(n % 5));
  }
  return Floats({1, count, 2}, values);
}

inline v1::CreateSequencesRequest CreateRequest(
    const std::vector<std::string>& names) {
  v1::CreateSequencesRequest request;
  for (const std::string& name : names) {
    v1::NewSequence& sequence = *request.add_sequences();
    sequence.set_name(name);
    sequence.mutable_form()->set_heads(1);
    sequence.mutable_form()->set_key_width(2);
    sequence.mutable_form()->set_value_width(2);
    sequence.mutable_form()->set_datatype(v1::DATA_TYPE_FP32);
  }
  return request;
}

inline v1::AppendRequest AppendOf(const std::string& name, int64_t first,
                                  int64_t count) {
  v1::AppendRequest request;
  request.set_name(name);
  *request.mutable_key() = RowsOf(first, count);
  *request.mutable_value() = RowsOf(first, count, 3);
  return request;
}

inline v1::AttendRequest Query(int64_t batch = 1) {
  v1::AttendRequest request;
  std::vector<double> values;
  values.reserve(static_cast<size_t>(batch) * 4);
  for (int64_t n = 0; n < batch * 4; ++n) {
    values.push_back(0.5 * static_cast<double>(n % 3));
  }
  *request.mutable_query() = Floats({batch, 1, 2, 2}, values);
  return request;
}

// Asks `query` of keys 0 to `keys` - 1, sent with it.
inline v1::AttendRequest WithKeys(v1::AttendRequest query, int64_t keys) {
  v1::KeyValueTensors& sent = *query.mutable_key_value();
  *sent.mutable_key() = RowsOf(0, keys);
  *sent.mutable_value() = RowsOf(0, keys, 3);
  for (v1::Tensor* tensor : {sent.mutable_key(), sent.mutable_value()}) {
    tensor->mutable_shape()->Clear();
    for (const int64_t extent : {int64_t{1}, int64_t{1}, keys, int64_t{2}}) {
      tensor->add_shape(extent);
    }
  }
  return query;
}

inline v1::AttendRequest OnSequences(v1::AttendRequest query,
                                     const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    query.mutable_sequences()->add_entries()->set_name(name);
  }
  return query;
}

// `count` keys from `first` on, behind those that are there.
inline v1::AttendRequest AndAppend(v1::AttendRequest request, int64_t first,
                                   int64_t count) {
  v1::KeyValueTensors& append = *request.mutable_sequences()->mutable_append();
  *append.mutable_key() = RowsOf(first, count);
  *append.mutable_value() = RowsOf(first, count, 3);
  for (v1::Tensor* tensor : {append.mutable_key(), append.mutable_value()}) {
    const std::vector<int64_t> shape = {1, 1, count, 2};
    tensor->mutable_shape()->Assign(shape.begin(), shape.end());
  }
  return request;
}

class SequencesTest : public testing::Test {
 protected:
  void Start(const server::ServerOptions& options = TestOptions()) {
    server_ = StartServer(options, &gate_);
    client_ = std::make_unique<WireClient>(server_->address());
  }

  template <typename Response>
  absl::StatusOr<Response> Call(const std::string& method,
                                const google::protobuf::MessageLite& request) {
    if (client_ == nullptr) Start();
    const absl::StatusOr<std::string> bytes =
        client_->Call(kService + method, request.SerializeAsString());
    if (!bytes.ok()) return bytes.status();
    Response response;
    EXPECT_TRUE(response.ParseFromString(*bytes));
    return response;
  }

  absl::StatusOr<v1::CreateSequencesResponse> Create(
      const std::vector<std::string>& names) {
    return Call<v1::CreateSequencesResponse>("Create", CreateRequest(names));
  }
  absl::StatusOr<v1::AppendResponse> Append(const v1::AppendRequest& request) {
    return Call<v1::AppendResponse>("Append", request);
  }
  // A sequence with keys 0 to `keys` - 1.
  void Make(const std::string& name, int64_t keys) {
    EXPECT_EQ(Create({name}).status(), absl::OkStatus());
    EXPECT_EQ(Append(AppendOf(name, 0, keys)).status(), absl::OkStatus());
  }

  // Keys of its first layer; -1 where it is not there.
  int64_t LengthOf(const std::string& name) {
    v1::DescribeSequenceRequest request;
    request.set_name(name);
    const auto described = Call<v1::SequenceDescription>("Describe", request);
    return described.ok() ? described->lengths(0) : -1;
  }

  absl::StatusOr<v1::AttendResponse> Attend(const v1::AttendRequest& request) {
    return client_->Attend(request);
  }
  // That both are answered, and alike.
  void ExpectSameAnswer(const v1::AttendRequest& a,
                        const v1::AttendRequest& b) {
    const auto first = Attend(a);
    const auto second = Attend(b);
    ASSERT_EQ(first.status(), absl::OkStatus());
    ASSERT_EQ(second.status(), absl::OkStatus());
    EXPECT_EQ(first->output().data(), second->output().data());
    EXPECT_EQ(first->weights().data(), second->weights().data());
  }

  TileGate gate_;
  std::unique_ptr<server::Server> server_;
  std::unique_ptr<WireClient> client_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_SEQUENCES_FIXTURE_H_
