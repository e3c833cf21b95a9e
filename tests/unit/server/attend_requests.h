#ifndef ATTENTION_TESTS_UNIT_SERVER_ATTEND_REQUESTS_H_
#define ATTENTION_TESTS_UNIT_SERVER_ATTEND_REQUESTS_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/slice.h>

#include <cstring>
#include <initializer_list>
#include <string>
#include <vector>

#include "attention/v1/attention.pb.h"

/// Requests and replies as bytes, for the tests of what lies between them.
namespace attention::server {

inline void SetTensor(v1::Tensor& tensor, v1::DataType type,
                      std::initializer_list<int64_t> shape, std::string data) {
  tensor.set_datatype(type);
  tensor.clear_shape();
  for (const int64_t extent : shape) tensor.add_shape(extent);
  tensor.set_data(std::move(data));
}

inline std::string Floats(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()),
          values.size() * sizeof(float)};
}

/// One query of width 2 over two keys, values of width 1: small and correct.
inline v1::AttendRequest SmallRequest() {
  v1::AttendRequest request;
  request.set_id("small");
  SetTensor(*request.mutable_query(), v1::DATA_TYPE_FP32, {1, 2},
            Floats({1, 2}));
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  SetTensor(*key_value.mutable_key(), v1::DATA_TYPE_FP32, {2, 2},
            Floats({1, 0, 1, 0}));
  SetTensor(*key_value.mutable_value(), v1::DATA_TYPE_FP32, {2, 1},
            Floats({3, 5}));
  return request;
}

/// SmallRequest() with every field of AttendRequest set, additive scoring;
/// together they are no problem that is computed.
inline v1::AttendRequest FullRequest() {
  v1::AttendRequest request = SmallRequest();
  v1::Additive& additive = *request.mutable_additive();
  SetTensor(*additive.mutable_w_q(), v1::DATA_TYPE_FP32, {2, 1},
            Floats({1, 2}));
  SetTensor(*additive.mutable_w_k(), v1::DATA_TYPE_FP32, {2, 1},
            Floats({3, 4}));
  SetTensor(*additive.mutable_w_v(), v1::DATA_TYPE_FP32, {1}, Floats({5}));
  request.set_softcap(30);
  SetTensor(*request.mutable_valid_lens(), v1::DATA_TYPE_INT32, {1},
            std::string("\2\0\0\0", 4));
  SetTensor(*request.mutable_attend_mask(), v1::DATA_TYPE_BOOL, {1, 2},
            std::string("\1\1", 2));
  SetTensor(*request.mutable_bias(), v1::DATA_TYPE_FP32, {1, 2},
            Floats({0, 1}));
  SetTensor(*request.mutable_alibi_slopes(), v1::DATA_TYPE_FP32, {1},
            Floats({6}));
  SetTensor(*request.mutable_sinks(), v1::DATA_TYPE_FP32, {1}, Floats({7}));
  SetTensor(*request.mutable_query_offsets(), v1::DATA_TYPE_INT32, {1},
            std::string("\1\0\0\0", 4));
  request.set_causal(v1::CAUSAL_TOP_LEFT);
  request.set_query_offset(7);
  request.set_key_offset(-3);
  request.set_window_left(100);
  request.set_window_right(200);
  request.set_training(true);
  request.set_dropout_p(0.25);
  request.set_seed(0xFFFFFFFFFFFFFFFF);
  request.set_weights_after_dropout(true);
  request.set_empty_rows(v1::EMPTY_ROWS_UNIFORM);
  request.set_return_weights(true);
  request.set_return_lse(true);
  return request;
}

/// The bytes in two slices, cut at `cut`.
inline std::vector<grpc::Slice> CutAt(const std::string& bytes, size_t cut) {
  return {grpc::Slice(bytes.data(), cut),
          grpc::Slice(bytes.data() + cut, bytes.size() - cut)};
}

inline std::vector<grpc::Slice> OneSlice(const std::string& bytes) {
  return {grpc::Slice(bytes)};
}

/// All bytes of a message that was built from slices.
inline std::string Flatten(const grpc::ByteBuffer& message) {
  std::vector<grpc::Slice> slices;
  if (!message.Dump(&slices).ok()) return {};
  std::string bytes;
  for (const grpc::Slice& slice : slices) {
    bytes.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return bytes;
}

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_ATTEND_REQUESTS_H_
