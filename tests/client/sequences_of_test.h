#ifndef ATTENTION_TESTS_CLIENT_SEQUENCES_OF_TEST_H_
#define ATTENTION_TESTS_CLIENT_SEQUENCES_OF_TEST_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention_client/client.h"

namespace attention::client {

/// Keys and values of two heads, of width 4, in FP32.
inline SequenceForm SmallForm(int64_t layers = 1) {
  return {.heads = 2, .key_width = 4, .value_width = 4, .layers = layers};
}

/// Makes a sequence of that form and gives its name.
inline std::string MakeSequence(const Client& client, const std::string& name,
                                int64_t layers = 1) {
  const auto made =
      client.CreateSequences({{.form = SmallForm(layers), .name = name}});
  EXPECT_TRUE(made.ok()) << made.status();
  return made.ok() ? made->names.at(0) : "";
}

/// (2, count, 4): numbers that follow from the seed and from where in a
/// sequence they stand, so that parts of what one seed gives fit together.
inline Tensor SmallRows(int seed, int64_t first, int64_t count) {
  std::vector<float> values;
  const int64_t start = int64_t{seed} * 31;
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t i = first; i < first + count; ++i) {
      for (int64_t d = 0; d < 4; ++d) {
        const int64_t number = (start + head * 17 + i * 7 + d * 3) % 23;
        values.push_back(static_cast<float>(number) / 8 - 1);
      }
    }
  }
  return Tensor::FromFloats({2, count, 4}, values);
}

/// Positions `first` to `first + count - 1` of the keys (seed 1) and values
/// (seed 2) that tests put into sequences.
inline KeysAndValues SmallKeys(int64_t first, int64_t count) {
  return {SmallRows(1, first, count), SmallRows(2, first, count)};
}

/// The same with a batch of one, as attending takes them.
inline KeysAndValues SmallBatch(int64_t first, int64_t count) {
  KeysAndValues rows = SmallKeys(first, count);
  return {std::move(rows.key).As(DataType::kFloat32, {1, 2, count, 4}),
          std::move(rows.value).As(DataType::kFloat32, {1, 2, count, 4})};
}

/// Appends them, behind the last key or at a position.
inline absl::StatusOr<AppendedKeys> AppendSmall(const Client& client,
                                                const SequenceLayer& to,
                                                int64_t first, int64_t count) {
  const KeysAndValues rows = SmallKeys(first, count);
  return client.AppendToSequence(to, rows.key, rows.value);
}

/// `queries` of two heads, each of the batch's entries alike.
inline Tensor SmallQuery(int64_t queries, int64_t batch = 1) {
  const std::vector<float> one = SmallRows(3, 0, queries).ToFloats();
  std::vector<float> all;
  for (int64_t n = 0; n < batch; ++n) {
    all.insert(all.end(), one.begin(), one.end());
  }
  return Tensor::FromFloats({batch, 2, queries, 4}, all);
}

/// A request that reads one sequence.
inline AttendRequest ReadRequest(const std::string& name, int64_t queries = 3) {
  AttendRequest request;
  request.query = SmallQuery(queries);
  request.sequences = SequenceKeys{.entries = {{.name = name}}};
  return request;
}

/// A request that sends the first `count` keys itself.
inline AttendRequest SentRequest(int64_t count, int64_t queries = 3) {
  AttendRequest request;
  request.query = SmallQuery(queries);
  KeysAndValues rows = SmallBatch(0, count);
  request.key = std::move(rows.key);
  request.value = std::move(rows.value);
  return request;
}

}  // namespace attention::client

#endif  // ATTENTION_TESTS_CLIENT_SEQUENCES_OF_TEST_H_
