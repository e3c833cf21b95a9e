#include "tests/benchmarks/shape.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/element.h"

namespace attention::bench {

std::string Case::Name() const {
  std::string name =
      absl::StrCat("B", batch, " H", query_heads,
                   KvHeads() != query_heads ? absl::StrCat("/", KvHeads()) : "",
                   " Lq", query_length, " Lk", KeyLength(), " D", width);
  if (ValueWidth() != width) absl::StrAppend(&name, " Dv", ValueWidth());
  absl::StrAppend(&name, " ", type, " ", scoring);
  if (causal) absl::StrAppend(&name, " causal");
  if (window >= 0) absl::StrAppend(&name, " window ", window);
  if (mean_length > 0) absl::StrAppend(&name, " lengths ~", mean_length);
  if (softcap > 0) absl::StrAppend(&name, " softcap");
  if (mask) absl::StrAppend(&name, " mask");
  if (weights) absl::StrAppend(&name, " weights");
  absl::StrAppend(&name, " threads ", threads, " ", backend);
  return name;
}

double Case::Flops() const {
  return 4.0 * static_cast<double>(batch * query_heads) *
         static_cast<double>(query_length) * static_cast<double>(KeyLength()) *
         static_cast<double>(width);
}

double Case::Bytes() const {
  const double size = type == "FP32" ? 4 : 2;
  const double query = static_cast<double>(batch * query_heads * query_length) *
                       static_cast<double>(width + ValueWidth());
  const double keys = static_cast<double>(batch * KvHeads() * KeyLength()) *
                      static_cast<double>(width + ValueWidth());
  return size * (query + keys);
}

Inputs::Inputs(const Case& shape) {
  const DataType type =
      DataTypeFromName(shape.type).value_or(DataType::kFloat32);
  const int64_t b = shape.batch;
  const int64_t keys = shape.KeyLength();
  problem_.query =
      Normal(type, {b, shape.query_heads, shape.query_length, shape.width}, 1);
  problem_.key_value.push_back(
      {Normal(type, {b, shape.KvHeads(), keys, shape.width}, 1),
       Normal(type, {b, shape.KvHeads(), keys, shape.ValueWidth()}, 1)});
  const double spread = 1 / std::sqrt(static_cast<double>(shape.width));
  if (shape.scoring == "additive") {
    const int64_t h = shape.HiddenWidth();
    problem_.scoring =
        Additive{Normal(DataType::kFloat32, {shape.width, h}, spread),
                 Normal(DataType::kFloat32, {shape.width, h}, spread),
                 Normal(DataType::kFloat32, {h}, 1)};
  } else if (shape.scoring == "gaussian") {
    problem_.scoring = Gaussian{std::sqrt(static_cast<double>(shape.width))};
  } else if (shape.scoring == "bilinear") {
    problem_.scoring = Bilinear{
        Normal(DataType::kFloat32, {shape.width, shape.width}, spread), spread};
  }
  if (shape.softcap > 0) problem_.softcap = shape.softcap;
  if (shape.causal) problem_.masks.causal = Causal::kBottomRight;
  if (shape.window >= 0) problem_.masks.window.left = shape.window;
  if (shape.mean_length > 0) {
    // Evenly spread over 1 ... 2 mean - 1, the same for every run.
    std::vector<int32_t> lengths;
    for (int64_t n = 0; n < b; ++n) {
      const int64_t length = (2 * n + 1) * shape.mean_length / b;
      lengths.push_back(static_cast<int32_t>(std::min(length, keys)));
    }
    problem_.masks.valid_lens = Keep(Tensor::FromInts({b}, lengths));
  }
  if (shape.mask) {
    Tensor mask =
        Tensor::Create(DataType::kBool, {1, 1, shape.query_length, keys})
            .value();
    for (int64_t i = 0; i < mask.element_count(); ++i) {
      mask.data()[i] = std::byte{i % 7 != 3};
    }
    problem_.masks.attend_mask = Keep(std::move(mask));
  }
  problem_.wanted.weights = shape.weights;
  problem_.wanted.lse = shape.lse;
}

TensorView Inputs::Keep(Tensor tensor) {
  tensors_.push_back(std::move(tensor));
  return tensors_.back().view();
}

// Sums of uniform numbers: close enough to normal to time with, and quick.
TensorView Inputs::Normal(DataType type, const Shape& shape, double spread) {
  Tensor tensor = Tensor::Create(type, shape).value();
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    double sum = -2;
    for (int n = 0; n < 4; ++n) {
      state_ = state_ * 6364136223846793005 + 1442695040888963407;
      sum += static_cast<double>(state_ >> 40) * 0x1p-24;
    }
    StoreElement(type, spread * std::sqrt(3.0) * sum,
                 tensor.data() + i * ByteSize(type));
  }
  return Keep(std::move(tensor));
}

}  // namespace attention::bench
