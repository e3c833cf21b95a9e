#include "tests/support/wire_problem.h"

#include <cstring>
#include <utility>

#include "tests/support/owned_problem.h"

namespace attention::test {
namespace {

// Puts the keys (or values) of all blocks into one tensor.
Tensor Concatenate(const AttentionProblem& problem,
                   TensorView KeyValueBlock::*part) {
  const TensorView& first = problem.key_value.at(0).*part;
  const int extent = first.rank() - 2;
  Shape shape = first.shape;
  shape[extent] = 0;
  for (const KeyValueBlock& block : problem.key_value) {
    shape[extent] += (block.*part).shape[extent];
  }
  Tensor whole = Tensor::Create(first.type, shape).value();
  int64_t begin = 0;
  for (const KeyValueBlock& block : problem.key_value) {
    const TensorView& from = block.*part;
    const int64_t end = begin + from.shape[extent];
    const TensorView to = Slice(whole.view(), extent, begin, end);
    ForEachIndex(from.shape, [&](absl::Span<const int64_t> index) {
      std::memcpy(ElementAddress(OwnedProblem::Writable(to), index),
                  ElementAddress(from, index), ByteSize(from.type));
    });
    begin = end;
  }
  return whole;
}

std::optional<Tensor> Materialize(const std::optional<TensorView>& view) {
  if (!view) return std::nullopt;
  return test::Materialize(*view);
}

struct ToWireScoring {
  client::Scoring operator()(const ScaledDotProduct& dot) const {
    return client::ScaledDotProduct{.scale = dot.scale};
  }
  client::Scoring operator()(const Additive& additive) const {
    return client::Additive{.w_q = test::Materialize(additive.w_q),
                            .w_k = test::Materialize(additive.w_k),
                            .w_v = test::Materialize(additive.w_v)};
  }
  client::Scoring operator()(const Gaussian& gaussian) const {
    client::Gaussian wire;
    if (gaussian.sigma != 1) wire.sigma = gaussian.sigma;
    return wire;
  }
  client::Scoring operator()(const Bilinear& bilinear) const {
    client::Bilinear wire{.m = test::Materialize(bilinear.m), .scale = {}};
    if (bilinear.scale != 1) wire.scale = bilinear.scale;
    return wire;
  }
};

// The same of scales, which only some types have. Whole rows in place of
// elements.
std::optional<Tensor> ConcatenateScales(
    AttentionProblem problem,
    std::optional<TensorView> KeyValueBlock::*scales) {
  if (!(problem.key_value.at(0).*scales)) return std::nullopt;
  for (KeyValueBlock& block : problem.key_value) {
    block.key = *(block.*scales);
    block.key.shape.push_back(1);
    block.key.strides.push_back(0);
  }
  Tensor whole = Concatenate(problem, &KeyValueBlock::key);
  Shape shape = whole.shape();
  shape.pop_back();
  return std::move(whole).As(DataType::kFloat32, shape);
}

void SetMasks(const Masks& masks, client::AttendRequest& request) {
  request.valid_lens = Materialize(masks.valid_lens);
  request.attend_mask = Materialize(masks.attend_mask);
  request.bias = Materialize(masks.bias);
  if (masks.causal == Causal::kTopLeft) {
    request.causal = client::Causal::kTopLeft;
  } else if (masks.causal == Causal::kBottomRight) {
    request.causal = client::Causal::kBottomRight;
  }
  request.query_offset = masks.query_offset;
  request.key_offset = masks.key_offset;
  request.query_offsets = Materialize(masks.query_offsets);
  request.window_left = masks.window.left;
  request.window_right = masks.window.right;
}

void SetDropout(const Dropout& dropout, client::AttendRequest& request) {
  if (dropout.training) request.training = true;
  if (dropout.p != 0) request.dropout_p = dropout.p;
  if (dropout.seed != 0) request.seed = dropout.seed;
}

}  // namespace

client::AttendRequest ToRequest(const AttentionProblem& problem) {
  client::AttendRequest request;
  request.query = test::Materialize(problem.query);
  request.key = Concatenate(problem, &KeyValueBlock::key);
  request.value = Concatenate(problem, &KeyValueBlock::value);
  request.key_scale = ConcatenateScales(problem, &KeyValueBlock::key_scale);
  request.value_scale = ConcatenateScales(problem, &KeyValueBlock::value_scale);
  request.scoring = std::visit(ToWireScoring{}, problem.scoring);
  request.softcap = problem.softcap;
  SetMasks(problem.masks, request);
  request.alibi_slopes = Materialize(problem.alibi_slopes);
  request.sinks = Materialize(problem.sinks);
  SetDropout(problem.dropout, request);
  if (problem.wanted.weights_after_dropout) {
    request.weights_after_dropout = true;
  }
  if (problem.empty_rows == EmptyRows::kUniform) {
    request.empty_rows = client::EmptyRows::kUniform;
  }
  request.return_weights = problem.wanted.weights;
  request.return_lse = problem.wanted.lse;
  request.top_k = problem.wanted.top_k;
  request.return_key_weights = problem.wanted.key_weights;
  if (problem.wanted.scores) {
    static_assert(static_cast<int>(client::Scores::kMasked) ==
                  static_cast<int>(ScoreStage::kMasked));
    request.scores = static_cast<client::Scores>(*problem.wanted.scores);
  }
  return request;
}

Results ToResults(client::AttendResult result) {
  return {.output = std::move(result.output),
          .weights = std::move(result.weights),
          .lse = std::move(result.lse),
          .top_k_indices = std::move(result.top_k_indices),
          .top_k_weights = std::move(result.top_k_weights),
          .key_weights = std::move(result.key_weights),
          .scores = std::move(result.scores)};
}

absl::StatusOr<Results> AttendOver(const client::Client& client,
                                   const AttentionProblem& problem) {
  absl::StatusOr<client::AttendResult> result =
      client.Attend(ToRequest(problem));
  if (!result.ok()) return result.status();
  return ToResults(*std::move(result));
}

}  // namespace attention::test
