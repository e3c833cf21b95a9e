#ifndef ATTENTION_TESTS_SERVICE_REQUESTS_H_
#define ATTENTION_TESTS_SERVICE_REQUESTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "attention/v1/attention.pb.h"

namespace attention::test {

/// A tensor of these elements, each rounded to the type; their number must be
/// the shape's product. No elements: the tensor has no data at all.
v1::Tensor MakeTensor(v1::DataType type, const std::vector<int64_t>& shape,
                      const std::vector<double>& values);
/// The same element everywhere.
v1::Tensor Filled(v1::DataType type, const std::vector<int64_t>& shape,
                  double value);
/// FP32.
v1::Tensor Zeros(const std::vector<int64_t>& shape);
v1::Tensor Floats(const std::vector<int64_t>& shape,
                  const std::vector<double>& values);

/// A tensor's elements, and its extents.
std::vector<double> Values(const v1::Tensor& tensor);
std::vector<int64_t> Shape(const v1::Tensor& tensor);

/// A request that is answered: B = 2, Hq = 4, Hkv = 2, Lq = 3, Lk = 5, D = 8,
/// Dv = 6. All scores are 0 and key j's value is j, so every output is 2.
v1::AttendRequest GoodRequest(const std::string& id = "good");

/// Fails unless this is the answer to GoodRequest(id).
void ExpectGoodReply(const absl::StatusOr<v1::AttendResponse>& reply,
                     const std::string& id = "good");

/// A request of more than 1000 tiles on every backend, and 1 MiB: 1024 queries,
/// 16384 keys, width 8.
v1::AttendRequest LargeRequest();

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_REQUESTS_H_
