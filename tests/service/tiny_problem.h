#ifndef ATTENTION_TESTS_SERVICE_TINY_PROBLEM_H_
#define ATTENTION_TESTS_SERVICE_TINY_PROBLEM_H_

#include <functional>
#include <vector>

#include "attention/v1/attention.pb.h"
#include "tests/service/wire_client.h"

/// Two queries, three keys and values of width 2, small enough to compute in a
/// test what a server must answer.
namespace attention::test {

/// A matrix by rows.
using Rows = std::vector<std::vector<double>>;

/// All of them are numbers that FP16 and BF16 hold exactly.
Rows TinyQueries();  // (2, 2)
Rows TinyKeys();     // (3, 2)
Rows TinyValues();   // (3, 2)

/// The request of rank 2 with these, which asks for weights and lse too.
v1::AttendRequest TinyRequest(v1::DataType type = v1::DATA_TYPE_FP32);

/// The same at another rank: heads and batch entries all have these numbers.
/// `batch` and `heads` must be 1 where the rank has no such extents.
v1::AttendRequest TinyRequest(int rank, int batch, int query_heads,
                              int kv_heads);

/// TinyRequest() with keys and values of INT8 or FP8, whose scales make the
/// very same numbers of them.
v1::AttendRequest TinyQuantizedRequest(v1::DataType type);

/// A matrix as an FP32 tensor.
v1::Tensor ToTensor(const Rows& rows);

/// score(query, key) for each pair of the tiny queries and keys.
using Vector = std::vector<double>;
Rows Scores(
    const std::function<double(const Vector& query, const Vector& key)>& score);
double Dot(const Vector& a, const Vector& b);

/// Sends the request and fails unless the answer is that of these scores, of
/// which -inf masks, in every head and batch entry: output, weights and lse.
/// `tolerance` is relative to 1.
void ExpectAnswer(WireClient& client, const v1::AttendRequest& request,
                  const Rows& scores, double tolerance = 1e-6);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_TINY_PROBLEM_H_
