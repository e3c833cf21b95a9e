#include "benchmarks/shape.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmarks/pages.h"
#include "core/element.h"

namespace attention::bench {
namespace {

DataType TypeOf(const std::string& name) {
  return DataTypeFromName(name).value_or(DataType::kFloat32);
}

}  // namespace

std::string Case::Name() const {
  std::string name = absl::StrCat(
      "B", batch, " H", query_heads,
      KvHeads() != query_heads ? absl::StrCat("/", KvHeads()) : "", " Lq",
      query_length > 0 ? absl::StrCat(query_length) : "=Lk", " Lk", KeysOf(0));
  if (IsPacked()) absl::StrAppend(&name, " to ", KeysOf(batch - 1));
  absl::StrAppend(&name, " D", width);
  if (ValueWidth() != width) absl::StrAppend(&name, " Dv", ValueWidth());
  absl::StrAppend(&name, " ", type, " ");
  if (KeyType() != type) absl::StrAppend(&name, "keys ", KeyType(), " ");
  absl::StrAppend(&name, scoring);
  if (causal) absl::StrAppend(&name, " causal");
  if (window >= 0) absl::StrAppend(&name, " window ", window);
  if (page > 0) absl::StrAppend(&name, " pages of ", page);
  if (mean_length > 0) absl::StrAppend(&name, " lengths ~", mean_length);
  if (softcap > 0) absl::StrAppend(&name, " softcap");
  if (alibi) absl::StrAppend(&name, " ALiBi");
  if (sinks) absl::StrAppend(&name, " sinks");
  if (mask) absl::StrAppend(&name, " mask");
  if (bias) absl::StrAppend(&name, " bias");
  if (dropout > 0) absl::StrAppend(&name, " dropout");
  if (magnitude != 1) absl::StrAppend(&name, " magnitude ", magnitude);
  if (weights) absl::StrAppend(&name, " weights");
  absl::StrAppend(&name, " threads ", threads, " ", backend);
  return name;
}

int64_t Case::KeysOf(int64_t entry) const {
  if (!IsPacked()) return KeyLength();
  const int64_t gaps = std::max<int64_t>(batch - 1, 1);
  return lengths[0] + (lengths[1] - lengths[0]) * entry / gaps;
}

int64_t Case::Queries() const {
  int64_t sum = 0;
  for (int64_t n = 0; n < batch; ++n) sum += QueriesOf(n);
  return sum;
}

int64_t Case::Keys() const {
  int64_t sum = 0;
  for (int64_t n = 0; n < batch; ++n) sum += KeysOf(n);
  return sum;
}

int64_t Case::Pairs() const {
  int64_t sum = 0;
  for (int64_t n = 0; n < batch; ++n) sum += QueriesOf(n) * KeysOf(n);
  return query_heads * sum;
}

double Case::Flops() const {
  return 4.0 * static_cast<double>(Pairs()) * static_cast<double>(width);
}

double Case::Bytes() const {
  const auto size = static_cast<double>(ByteSize(TypeOf(type)));
  const auto key_size = static_cast<double>(ByteSize(TypeOf(KeyType())));
  const double query = static_cast<double>(query_heads * Queries()) *
                       static_cast<double>(width + ValueWidth());
  const double keys = static_cast<double>(KvHeads() * Keys()) *
                      static_cast<double>(width + ValueWidth());
  double results = 0;  // beside the output, FP32
  if (weights) results += 4 * static_cast<double>(Pairs());
  if (lse) results += 4 * static_cast<double>(query_heads * Queries());
  if (IsScaledType(TypeOf(KeyType()))) {
    results += 8 * static_cast<double>(KvHeads() * Keys());
  }
  return size * query + key_size * keys + results;
}

void Inputs::MakeRectangle(const Case& shape) {
  const DataType key_type = TypeOf(shape.KeyType());
  const int64_t b = shape.batch;
  const int64_t keys = shape.KeyLength();
  problem_.query = Normal(
      "query", TypeOf(shape.type),
      {b, shape.query_heads, shape.query_length, shape.width}, shape.magnitude);
  KeyValueBlock whole;
  whole.key = Rows("key", key_type, {b, shape.KvHeads(), keys, shape.width},
                   shape.magnitude, whole.key_scale);
  whole.value =
      Rows("value", key_type, {b, shape.KvHeads(), keys, shape.ValueWidth()},
           shape.magnitude, whole.value_scale);
  problem_.key_value = shape.page > 0 ? CutIntoPages(whole, shape.page, pages_)
                                      : KeyValueBlocks{whole};
}

void Inputs::MakePacked(const Case& shape) {
  const DataType key_type = TypeOf(shape.KeyType());
  const int64_t b = shape.batch;
  std::vector<int32_t> query_starts = {0}, key_starts = {0};
  for (int64_t n = 0; n < b; ++n) {
    query_starts.push_back(query_starts.back() +
                           static_cast<int32_t>(shape.QueriesOf(n)));
    key_starts.push_back(key_starts.back() +
                         static_cast<int32_t>(shape.KeysOf(n)));
  }
  problem_.query = Normal("query", TypeOf(shape.type),
                          {shape.Queries(), shape.query_heads, shape.width},
                          shape.magnitude);
  KeyValueBlock whole;
  whole.key =
      Rows("key", key_type, {shape.Keys(), shape.KvHeads(), shape.width},
           shape.magnitude, whole.key_scale);
  whole.value = Rows("value", key_type,
                     {shape.Keys(), shape.KvHeads(), shape.ValueWidth()},
                     shape.magnitude, whole.value_scale);
  problem_.query_starts =
      Keep("query_starts", Tensor::FromInts({b + 1}, query_starts));
  const TensorView starts =
      Keep("key_starts", Tensor::FromInts({b + 1}, key_starts));
  if (shape.page == 0) {
    problem_.key_value.push_back(whole);
    problem_.key_starts = starts;
    return;
  }
  for (int64_t n = 0; n < b; ++n) {
    const auto entry = static_cast<size_t>(n);
    const KeyValueBlock keys =
        EntryOf(whole, key_starts[entry], key_starts[entry + 1]);
    problem_.key_value_of_entries.push_back(
        CutIntoPages(keys, shape.page, pages_));
  }
}

Inputs::Inputs(const Case& shape) {
  const DataType type = TypeOf(shape.type);
  const int64_t b = shape.batch;
  const int64_t keys = shape.KeyLength();
  if (shape.IsPacked()) {
    MakePacked(shape);
  } else {
    MakeRectangle(shape);
  }
  const double spread = 1 / std::sqrt(static_cast<double>(shape.width));
  if (shape.scoring == "additive") {
    const int64_t h = shape.HiddenWidth();
    problem_.scoring =
        Additive{Normal("w_q", DataType::kFloat32, {shape.width, h}, spread),
                 Normal("w_k", DataType::kFloat32, {shape.width, h}, spread),
                 Normal("w_v", DataType::kFloat32, {h}, 1)};
  } else if (shape.scoring == "gaussian") {
    problem_.scoring = Gaussian{std::sqrt(static_cast<double>(shape.width))};
  } else if (shape.scoring == "bilinear") {
    problem_.scoring = Bilinear{
        Normal("m", DataType::kFloat32, {shape.width, shape.width}, spread),
        spread};
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
    problem_.masks.valid_lens =
        Keep("valid_lens", Tensor::FromInts({b}, lengths));
  }
  if (shape.alibi) {
    // 2^(-8 / Hq), 2^(-16 / Hq), ... 2^-8.
    std::vector<float> slopes;
    for (int64_t n = 1; n <= shape.query_heads; ++n) {
      slopes.push_back(std::exp2(-8 * static_cast<float>(n) /
                                 static_cast<float>(shape.query_heads)));
    }
    problem_.alibi_slopes =
        Keep("alibi_slopes", Tensor::FromFloats({shape.query_heads}, slopes));
  }
  if (shape.sinks) {
    problem_.sinks =
        Normal("sinks", DataType::kFloat32, {shape.query_heads}, 1);
  }
  if (shape.mask) {
    Mask([keys](int64_t i, int64_t j) { return (i * keys + j) % 7 != 3; });
  }
  if (shape.bias) {
    problem_.masks.bias =
        Normal("bias", type, {1, 1, shape.query_length, keys}, 1);
  }
  if (shape.dropout > 0) {
    problem_.dropout = {.training = true, .p = shape.dropout, .seed = 1};
  }
  problem_.wanted.weights = shape.weights;
  problem_.wanted.lse = shape.lse;
}

void Inputs::Change(
    absl::string_view name,
    absl::FunctionRef<double(int64_t row, int64_t column, double)> number) {
  for (auto& [known, tensor] : tensors_) {
    if (known != name) continue;
    const int64_t columns = tensor.shape().back();
    const int64_t size = ByteSize(tensor.type());
    for (int64_t n = 0; n < tensor.element_count(); ++n) {
      std::byte* const at = tensor.data() + n * size;
      const double was = LoadElement(tensor.type(), at);
      StoreElement(tensor.type(), number(n / columns, n % columns, was), at);
    }
  }
}

void Inputs::Mask(absl::FunctionRef<bool(int64_t i, int64_t j)> takes_part) {
  const int64_t rows = problem_.query.shape[2];
  const int64_t keys = problem_.key_value[0].key.shape[2];
  Tensor mask = Tensor::Create(DataType::kBool, {1, 1, rows, keys}).value();
  for (int64_t n = 0; n < mask.element_count(); ++n) {
    mask.data()[n] = std::byte{takes_part(n / keys, n % keys)};
  }
  problem_.masks.attend_mask = Keep("attend_mask", std::move(mask));
}

TensorView Inputs::Keep(const char* name, Tensor tensor) {
  tensors_.emplace_back(name, std::move(tensor));
  return tensors_.back().second.view();
}

// One scale for all rows: time does not depend on them.
TensorView Inputs::Rows(const char* name, DataType type, const Shape& shape,
                        double spread, std::optional<TensorView>& scales) {
  if (!IsScaledType(type)) return Normal(name, type, shape, spread);
  constexpr double kMostDeviations = 3.5;  // as Normal() has them
  const double largest = type == DataType::kInt8 ? 127 : 448;
  Shape rows = shape;
  rows.pop_back();
  Tensor of_rows = Tensor::Create(DataType::kFloat32, rows).value();
  for (int64_t n = 0; n < of_rows.element_count(); ++n) {
    StoreElement(DataType::kFloat32, spread * kMostDeviations / largest,
                 of_rows.data() + n * ByteSize(DataType::kFloat32));
  }
  scales =
      Keep(name[0] == 'k' ? "key_scale" : "value_scale", std::move(of_rows));
  return Normal(name, type, shape, largest / kMostDeviations);
}

// Sums of uniform numbers: close enough to normal to time with, and quick.
TensorView Inputs::Normal(const char* name, DataType type, const Shape& shape,
                          double spread) {
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
  return Keep(name, std::move(tensor));
}

}  // namespace attention::bench
