#ifndef ATTENTION_TESTS_CLIENT_REQUESTS_H_
#define ATTENTION_TESTS_CLIENT_REQUESTS_H_

#include <cstdint>
#include <vector>

#include "attention_client/client.h"

namespace attention::client {

/// One query and one key of width 2, and the value [number]: the output is
/// [number] again.
inline AttendRequest NumberRequest(float number) {
  AttendRequest request;
  request.query = Tensor::FromFloats({1, 2}, {1, 2});
  request.key = Tensor::FromFloats({1, 2}, {3, 4});
  request.value = Tensor::FromFloats({1, 1}, {number});
  return request;
}

/// One that every server refuses: the key is wider than the query.
inline AttendRequest BadRequest() {
  AttendRequest request = NumberRequest(0);
  request.key = Tensor::FromFloats({1, 3}, {3, 4, 5});
  return request;
}

/// `rows` queries of width 4 against one key: 16 * rows bytes each way, and
/// little to compute. Every output row is the value [1, 2, 3, 4].
inline AttendRequest LargeRequest(int64_t rows) {
  AttendRequest request;
  request.query = Tensor::FromFloats(
      {rows, 4}, std::vector<float>(static_cast<size_t>(rows * 4), 0.5F));
  request.key = Tensor::FromFloats({1, 4}, {1, 1, 1, 1});
  request.value = Tensor::FromFloats({1, 4}, {1, 2, 3, 4});
  return request;
}

}  // namespace attention::client

#endif  // ATTENTION_TESTS_CLIENT_REQUESTS_H_
