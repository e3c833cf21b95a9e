#include "tests/service/requests.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <numeric>

#include "core/element.h"

namespace attention::test {
namespace {

attention::DataType CoreType(v1::DataType type) {
  switch (type) {
    case v1::DATA_TYPE_FP32:
      return attention::DataType::kFloat32;
    case v1::DATA_TYPE_FP16:
      return attention::DataType::kFloat16;
    case v1::DATA_TYPE_BF16:
      return attention::DataType::kBFloat16;
    case v1::DATA_TYPE_INT32:
      return attention::DataType::kInt32;
    case v1::DATA_TYPE_INT64:
      return attention::DataType::kInt64;
    case v1::DATA_TYPE_BOOL:
      return attention::DataType::kBool;
    case v1::DATA_TYPE_UINT8:
      return attention::DataType::kUint8;
    case v1::DATA_TYPE_INT8:
      return attention::DataType::kInt8;
    case v1::DATA_TYPE_FP8:
      return attention::DataType::kFloat8;
    default:
      std::abort();  // a test asked for elements of no type
  }
}

}  // namespace

v1::Tensor MakeTensor(v1::DataType type, const std::vector<int64_t>& shape,
                      const std::vector<double>& values) {
  v1::Tensor tensor;
  tensor.set_datatype(type);
  tensor.mutable_shape()->Assign(shape.begin(), shape.end());
  const auto core_type = CoreType(type);
  const auto size = static_cast<size_t>(ByteSize(core_type));
  std::string data(values.size() * size, '\0');
  for (size_t i = 0; i < values.size(); ++i) {
    StoreElement(core_type, values[i],
                 reinterpret_cast<std::byte*>(data.data() + i * size));
  }
  tensor.set_data(std::move(data));
  return tensor;
}

v1::Tensor Filled(v1::DataType type, const std::vector<int64_t>& shape,
                  double value) {
  const int64_t count = std::accumulate(shape.begin(), shape.end(), int64_t{1},
                                        std::multiplies<>());
  return MakeTensor(type, shape,
                    std::vector<double>(static_cast<size_t>(count), value));
}

v1::Tensor Zeros(const std::vector<int64_t>& shape) {
  return Filled(v1::DATA_TYPE_FP32, shape, 0);
}

v1::Tensor Floats(const std::vector<int64_t>& shape,
                  const std::vector<double>& values) {
  return MakeTensor(v1::DATA_TYPE_FP32, shape, values);
}

std::vector<double> Values(const v1::Tensor& tensor) {
  std::vector<double> values;
  if (tensor.data().empty()) return values;
  const auto type = CoreType(tensor.datatype());
  const auto size = static_cast<size_t>(ByteSize(type));
  for (size_t i = 0; i + size <= tensor.data().size(); i += size) {
    values.push_back(LoadElement(
        type, reinterpret_cast<const std::byte*>(tensor.data().data() + i)));
  }
  return values;
}

std::vector<int64_t> Shape(const v1::Tensor& tensor) {
  return {tensor.shape().begin(), tensor.shape().end()};
}

v1::AttendRequest GoodRequest(const std::string& id) {
  v1::AttendRequest request;
  request.set_id(id);
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {2, 4, 3, 8}, 0);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {2, 2, 5, 8}, 1);
  std::vector<double> values;
  for (int head = 0; head < 2 * 2; ++head) {
    for (int key = 0; key < 5; ++key) values.insert(values.end(), 6, key);
  }
  *key_value.mutable_value() = Floats({2, 2, 5, 6}, values);
  return request;
}

void ExpectGoodReply(const absl::StatusOr<v1::AttendResponse>& reply,
                     const std::string& id) {
  using ::testing::DoubleNear;
  using ::testing::Each;
  using ::testing::ElementsAre;
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->id(), id);
  EXPECT_THAT(Shape(reply->output()), ElementsAre(2, 4, 3, 6));
  EXPECT_EQ(Values(reply->output()).size(), 2u * 4 * 3 * 6);
  EXPECT_THAT(Values(reply->output()), Each(DoubleNear(2, 1e-6)));
}

v1::AttendRequest LargeRequest() {
  v1::AttendRequest request;
  request.set_id("large");
  *request.mutable_query() = Filled(v1::DATA_TYPE_FP32, {2048, 8}, 0.5);
  v1::KeyValueTensors& key_value = *request.mutable_key_value();
  *key_value.mutable_key() = Filled(v1::DATA_TYPE_FP32, {16384, 8}, 0.25);
  *key_value.mutable_value() = Filled(v1::DATA_TYPE_FP32, {16384, 8}, 3);
  return request;
}

}  // namespace attention::test
