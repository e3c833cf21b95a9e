#include "tests/support/oracle_reader.h"

#include <cmath>
#include <cstring>
#include <limits>

namespace attention::test {
namespace {

template <typename T>
T ReadAs(const std::byte* address) {
  T value;
  std::memcpy(&value, address, sizeof(value));
  return value;
}

// IEEE 754 binary16: 1 sign bit, 5 of exponent (bias 15), 10 of fraction.
double HalfToDouble(uint16_t bits) {
  const double sign = (bits >> 15) != 0 ? -1 : 1;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  if (exponent < 31) return sign * std::ldexp(1024 + fraction, exponent - 25);
  return fraction == 0 ? sign * std::numeric_limits<double>::infinity()
                       : std::numeric_limits<double>::quiet_NaN();
}

// E4M3: 1 sign bit, 4 of exponent (bias 7), 3 of fraction. No infinities.
double EightToDouble(uint8_t bits) {
  const double sign = (bits >> 7) != 0 ? -1 : 1;
  const int exponent = (bits >> 3) & 15;
  const int fraction = bits & 7;
  if (exponent == 15 && fraction == 7) {
    return std::numeric_limits<double>::quiet_NaN();
  }
  if (exponent == 0) return sign * std::ldexp(fraction, -9);
  return sign * std::ldexp(8 + fraction, exponent - 10);
}

double BrainToDouble(uint16_t bits) {
  const uint32_t widened = static_cast<uint32_t>(bits) << 16;
  float value;
  std::memcpy(&value, &widened, sizeof(value));
  return value;
}

// Element (b, h, i, x) of a tensor of a problem of rank 2 to 4, where absent
// extents and extents of 1 are broadcast as in NumPy.
const std::byte* AddressOf(const TensorView& view, int problem_rank, int64_t b,
                           int64_t h, int64_t i, int64_t x) {
  const int64_t four[] = {b, h, i, x};
  const int64_t three[] = {b, i, x};
  const int64_t two[] = {i, x};
  const int64_t* const index = problem_rank == 4   ? four
                               : problem_rank == 3 ? three
                                                   : two;
  const std::byte* at = view.data;
  for (int extent = 0; extent < view.rank(); ++extent) {
    if (view.shape[extent] == 1) continue;
    at += view.strides[extent] * index[problem_rank - view.rank() + extent];
  }
  return at;
}

double ReadBroadcast(const TensorView& view, int problem_rank, int64_t b,
                     int64_t h, int64_t i, int64_t x) {
  return ReadElement(view.type, AddressOf(view, problem_rank, b, h, i, x));
}

}  // namespace

double ReadElement(DataType type, const std::byte* address) {
  switch (type) {
    case DataType::kFloat32:
      return ReadAs<float>(address);
    case DataType::kFloat16:
      return HalfToDouble(ReadAs<uint16_t>(address));
    case DataType::kBFloat16:
      return BrainToDouble(ReadAs<uint16_t>(address));
    case DataType::kFloat8:
      return EightToDouble(ReadAs<uint8_t>(address));
    case DataType::kInt8:
      return ReadAs<int8_t>(address);
    case DataType::kInt32:
      return ReadAs<int32_t>(address);
    case DataType::kInt64:
      return static_cast<double>(ReadAs<int64_t>(address));
    case DataType::kBool:
    case DataType::kUint8:
      return ReadAs<uint8_t>(address);
    default:
      return std::numeric_limits<double>::quiet_NaN();  // not an input's type
  }
}

ProblemReader::ProblemReader(const AttentionProblem& problem)
    : problem_(problem), rank_(problem.query.rank()) {
  for (const KeyValueBlock& block : problem.key_value) {
    const int64_t keys = block.key.shape[rank_ - 2];
    for (int64_t j = 0; j < keys; ++j) places_.push_back({&block, j});
  }
  for (int64_t b = 0; b < batch(); ++b) {
    for (const Place& place : places_) {
      const auto& [key, value, key_scale, value_scale, checked, page] =
          *place.block;
      AppendHeads(key, key_scale, b, place.index, keys_);
      AppendHeads(value, value_scale, b, place.index, values_);
    }
  }
}

int64_t ProblemReader::value_width() const {
  return problem_.key_value.empty()
             ? 0
             : problem_.key_value[0].value.shape[rank_ - 1];
}

double ProblemReader::Bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
  return problem_.masks.bias
             ? ReadBroadcast(*problem_.masks.bias, rank_, b, h, i, j)
             : 0;
}

bool ProblemReader::TakesPart(int64_t b, int64_t h, int64_t i,
                              int64_t j) const {
  const Masks& masks = problem_.masks;
  if (masks.valid_lens && static_cast<double>(j) >= ValidLength(b, i)) {
    return false;
  }
  if (masks.attend_mask &&
      ReadBroadcast(*masks.attend_mask, rank_, b, h, i, j) == 0) {
    return false;
  }
  const absl::int128 key = absl::int128(j) + masks.key_offset.value_or(0);
  const absl::int128 p = Position(b, i);
  if (masks.causal != Causal::kNone && key > p) return false;
  if (masks.window.left && key < p - *masks.window.left) return false;
  return !(masks.window.right && key > p + *masks.window.right);
}

absl::int128 ProblemReader::Position(int64_t b, int64_t i) const {
  const Masks& masks = problem_.masks;
  const absl::int128 row = i;
  if (masks.causal == Causal::kBottomRight) {
    return row + key_length() - query_length();
  }
  if (const auto& offsets = masks.query_offsets) {
    const std::byte* at = offsets->data + b * offsets->strides[0];
    return row + (offsets->type == DataType::kInt64 ? ReadAs<int64_t>(at)
                                                    : ReadAs<int32_t>(at));
  }
  return row + masks.query_offset.value_or(0);
}

double ProblemReader::Alibi(int64_t b, int64_t h, int64_t i, int64_t j) const {
  if (!problem_.alibi_slopes) return 0;
  const absl::int128 key =
      absl::int128(j) + problem_.masks.key_offset.value_or(0);
  const auto distance = static_cast<double>(Position(b, i) - key);
  return -OfHead(*problem_.alibi_slopes, b, h) * std::abs(distance);
}

std::optional<double> ProblemReader::Sink(int64_t b, int64_t h) const {
  if (!problem_.sinks) return std::nullopt;
  const double sink = OfHead(*problem_.sinks, b, h);
  if (std::isinf(sink)) return std::nullopt;
  return sink;
}

double ProblemReader::OfHead(const TensorView& view, int64_t b, int64_t h) {
  const std::byte* at = view.data;
  if (view.rank() == 2) at += b * view.strides[0];
  return ReadElement(view.type, at + h * view.strides.back());
}

void ProblemReader::AppendHeads(const TensorView& tensor,
                                const std::optional<TensorView>& scales,
                                int64_t b, int64_t index,
                                std::vector<std::vector<double>>& rows) const {
  for (int64_t h = 0; h < KvHeads(); ++h) {
    rows.push_back(Row(tensor, b, h, index));
    if (!scales) continue;
    const double scale = Scale(*scales, b, h, index);
    // An FP32 number, as the contract has it.
    for (double& element : rows.back()) {
      element = static_cast<float>(element * scale);
    }
  }
}

double ProblemReader::Scale(const TensorView& scales, int64_t b, int64_t h,
                            int64_t j) const {
  const std::byte* at = scales.data + j * scales.strides.back();
  if (rank_ >= 3) at += b * scales.strides[0];
  if (rank_ == 4) at += h * scales.strides[1];
  return ReadElement(scales.type, at);
}

size_t ProblemReader::PlaceOf(int64_t b, int64_t query_head, int64_t j) const {
  const int64_t kv_head = query_head / (query_heads() / KvHeads());
  return static_cast<size_t>((b * key_length() + j) * KvHeads() + kv_head);
}

std::vector<double> ProblemReader::Row(const TensorView& tensor, int64_t b,
                                       int64_t h, int64_t i) const {
  std::vector<double> row(tensor.shape[rank_ - 1]);
  const std::byte* at = AddressOf(tensor, rank_, b, h, i, 0);
  for (double& element : row) {
    element = ReadElement(tensor.type, at);
    at += tensor.strides.back();
  }
  return row;
}

double ProblemReader::ValidLength(int64_t b, int64_t i) const {
  const TensorView& lengths = *problem_.masks.valid_lens;
  const std::byte* at = lengths.data + b * lengths.strides[0];
  if (lengths.rank() == 2) at += i * lengths.strides[1];
  return ReadElement(lengths.type, at);
}

}  // namespace attention::test
