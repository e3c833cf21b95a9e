#ifndef ATTENTION_BENCHMARKS_SHAPE_H_
#define ATTENTION_BENCHMARKS_SHAPE_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"
#include "core/problem.h"
#include "core/tensor.h"

namespace attention::bench {

/// What is measured; the benchmark's flags fill it.
struct Case {
  int64_t batch = 1;
  int64_t query_heads = 16;
  int64_t kv_heads = 0;  // 0: as many as query heads
  int64_t query_length = 1024;
  int64_t key_length = 0;  // 0: the query's
  // Of a packed batch: each entry's keys, spread evenly from the first of two
  // to the second. A query_length of 0 then means as many queries. Empty: none.
  std::vector<int64_t> lengths = {};
  int64_t width = 64;
  int64_t value_width = 0;   // 0: width
  int64_t hidden_width = 0;  // 0: width
  std::string type = "FP32";
  std::string key_type = {};    // of key and value; empty: type
  std::string scoring = "dot";  // dot, additive, gaussian, bilinear
  bool causal = false;          // bottom-right
  int64_t window = -1;          // keys to the left; -1: none
  int64_t page = 0;             // keys of a page; 0: one piece
  int64_t mean_length = 0;      // valid_lens of this mean; 0: none
  double softcap = 0;
  bool alibi = false;
  bool sinks = false;
  bool mask = false;
  bool bias = false;     // (1, 1, Lq, Lk), normally distributed
  double dropout = 0;    // its probability; 0: none
  double magnitude = 1;  // standard deviation of query, key and value
  bool weights = false;
  bool lse = false;
  int threads = 1;
  std::string backend = "cpu";

  const std::string& KeyType() const {
    return key_type.empty() ? type : key_type;
  }
  int64_t KvHeads() const { return kv_heads > 0 ? kv_heads : query_heads; }
  int64_t KeyLength() const {
    return key_length > 0 ? key_length : query_length;
  }
  bool IsPacked() const { return !lengths.empty(); }
  /// Queries and keys of one entry: the same for all where it is not packed.
  int64_t QueriesOf(int64_t entry) const {
    return query_length > 0 ? query_length : KeysOf(entry);
  }
  int64_t KeysOf(int64_t entry) const;
  /// Queries and keys of all entries.
  int64_t Queries() const;
  int64_t Keys() const;
  int64_t ValueWidth() const { return value_width > 0 ? value_width : width; }
  int64_t HiddenWidth() const {
    return hidden_width > 0 ? hidden_width : width;
  }

  /// "B1 H16 L1024 D64 FP32 dot causal", for the report.
  std::string Name() const;
  /// Pairs of a query and a key, over all heads: B Hq Lq Lk, or the sum over a
  /// packed batch's entries.
  int64_t Pairs() const;
  /// 4 D for each of them, whatever the masks leave of it.
  double Flops() const;
  /// Bytes of query, key, value, scales and results, each counted once.
  double Bytes() const;
};

/// A problem of this shape over normally distributed numbers, and its memory.
class Inputs {
 public:
  explicit Inputs(const Case& shape);
  const AttentionProblem& problem() const { return problem_; }

  /// Replaces the elements of one tensor, "query", "w_k", ...: `number` is told
  /// the element's row over all batch entries and heads, its column and what it
  /// was.
  void Change(
      absl::string_view name,
      absl::FunctionRef<double(int64_t row, int64_t column, double)> number);
  /// Lets key j take part in row i of every head where `takes_part` says so.
  void Mask(absl::FunctionRef<bool(int64_t i, int64_t j)> takes_part);

  /// By their names on the wire.
  const std::vector<std::pair<std::string, Tensor>>& tensors() const {
    return tensors_;
  }

 private:
  TensorView Normal(const char* name, DataType type, const Shape& shape,
                    double spread);
  // A key or value, and its scales where its type has some.
  TensorView Rows(const char* name, DataType type, const Shape& shape,
                  double spread, std::optional<TensorView>& scales);
  TensorView Keep(const char* name, Tensor tensor);
  // Query, key and value of a packed batch, and where its entries start.
  void MakePacked(const Case& shape);
  void MakeRectangle(const Case& shape);

  uint64_t state_ = 0x9E3779B97F4A7C15;
  AttentionProblem problem_;
  std::vector<std::pair<std::string, Tensor>> tensors_;
  std::vector<Tensor> pages_;
};

}  // namespace attention::bench

#endif  // ATTENTION_BENCHMARKS_SHAPE_H_
