#include "core/self_check_cases.h"

#include <cmath>
#include <cstddef>
#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/element.h"
#include "core/philox.h"

namespace attention {
namespace {

// Queries are so large that a row's weights are those of a few keys: where they
// are those of all, a result that is wrong in every bit is as small as a right
// one.
constexpr double kQuerySpread = 12;

}  // namespace

SelfCheckCase::SelfCheckCase(std::string name, const SelfCheckOutline& outline)
    : name_(std::move(name)), outline_(outline) {
  problem_.query =
      Make({1, outline.query_heads, outline.query_length, outline.width},
           kQuerySpread);
  const Shape keys = {1, outline.kv_heads, outline.key_length, outline.width};
  Shape values = keys;
  if (outline.value_width > 0) values.back() = outline.value_width;
  const TensorView key = Make(keys);
  problem_.key_value.push_back({key, Make(values)});
  problem_.wanted = outline.wanted;
}

SelfCheckCase&& SelfCheckCase::AtOnce() && {
  at_once_ = true;
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithNanBehindLength() && {
  Tensor& value = tensors_.at(2);
  const Shape& shape = value.shape();
  const int64_t row = shape[3] * ByteSize(value.type());
  for (int64_t head = 0; head < shape[1]; ++head) {
    std::byte* const last = value.data() + ((head + 1) * shape[2] - 1) * row;
    StoreElement(value.type(), std::numeric_limits<double>::quiet_NaN(), last);
  }
  tensors_.push_back(
      Tensor::FromInts({1}, {static_cast<int32_t>(shape[2] - 1)}));
  problem_.masks.valid_lens = tensors_.back().view();
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithCausal() && {
  problem_.masks.causal = Causal::kTopLeft;
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithBand() && {
  problem_.masks.window = {.left = 30, .right = 20};
  problem_.masks.bias = Make({outline_.query_length, outline_.key_length});
  problem_.softcap = 10;
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithWindow() && {
  problem_.masks.causal = Causal::kBottomRight;
  problem_.masks.window.left = 200;
  problem_.softcap = 10;
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithMask() && {
  const Shape shape = {outline_.query_length, outline_.key_length};
  problem_.masks.attend_mask = MakeOf(DataType::kBool, shape, 0);
  Tensor& mask = tensors_.back();
  for (int64_t n = 0; n < mask.element_count(); ++n) {
    mask.data()[n] = n % 3 == 0 ? std::byte{0} : std::byte{1};
  }
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithAlibiAndSinks() && {
  problem_.masks.query_offset = 20;
  const Shape heads = {outline_.query_heads};
  problem_.alibi_slopes = MakeOf(DataType::kFloat32, heads, 1);
  problem_.sinks = MakeOf(DataType::kFloat32, heads, 10);
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithDropout() && {
  problem_.dropout = {.training = true, .p = 0.3, .seed = 5};
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithScoring(Scoring scoring) && {
  problem_.scoring = std::move(scoring);
  return std::move(*this);
}

SelfCheckCase&& SelfCheckCase::WithAdditive(int64_t hidden) && {
  Additive additive;
  additive.w_q = Make({outline_.width, hidden});
  additive.w_k = Make({outline_.width, hidden});
  additive.w_v = Make({hidden});
  return std::move(*this).WithScoring(additive);
}

SelfCheckCase&& SelfCheckCase::WithBilinear() && {
  Bilinear bilinear;
  bilinear.m = Make({outline_.width, outline_.width});
  bilinear.scale = 0.05;
  return std::move(*this).WithScoring(bilinear);
}

TensorView SelfCheckCase::MakeOf(DataType type, const Shape& shape,
                                 double spread) {
  Tensor tensor = Tensor::Create(type, shape).value();
  const auto number = static_cast<uint32_t>(tensors_.size());
  for (int64_t n = 0; n < tensor.element_count(); ++n) {
    const uint32_t word =
        Philox4x32({static_cast<uint32_t>(n), number, 0, 0}, {1, 2})[0];
    StoreElement(type, (std::ldexp(word, -31) - 1) * spread,
                 tensor.data() + n * ByteSize(type));
  }
  tensors_.push_back(std::move(tensor));
  return tensors_.back().view();
}

std::vector<SelfCheckCase> SelfCheckCases() {
  constexpr WantedOutputs kAll = {.weights = true, .lse = true};
  constexpr SelfCheckOutline kProducts = {
      .query_length = 520, .key_length = 520, .width = 16, .wanted = kAll};
  std::vector<SelfCheckCase> cases;
  const auto add = [&](SelfCheckCase&& made) {
    cases.push_back(std::move(made));
  };
  add(SelfCheckCase("FP32 causal, dropout, weights", {.wanted = kAll})
          .WithCausal()
          .WithDropout()
          .AtOnce());
  add(SelfCheckCase("FP32 band, bias, softcap", {.width = 130}).WithBand());
  add(SelfCheckCase("FP32 many rows",
                    {.query_length = 150, .key_length = 200, .width = 64})
          .WithCausal()
          .AtOnce());
  add(SelfCheckCase("FP32 many wide rows, band, bias, softcap",
                    {.query_length = 150, .key_length = 200, .width = 130})
          .WithBand());
  add(SelfCheckCase("FP32 ALiBi, sinks", {.wanted = kAll}).WithAlibiAndSinks());
  add(SelfCheckCase("FP32 additive", {.wanted = kAll}).WithAdditive(33));
  add(SelfCheckCase("FP32 Gaussian", {.width = 3, .wanted = kAll})
          .WithScoring(Gaussian{.sigma = 1}));
  add(SelfCheckCase("FP32 bilinear", {}).WithBilinear());
  add(SelfCheckCase("FP32 scale 0", {})
          .WithScoring(ScaledDotProduct{.scale = 0}));
  add(SelfCheckCase("FP32 few rows", {.query_length = 2, .key_length = 3000}));
  add(SelfCheckCase("FP32 products", kProducts).WithCausal().AtOnce());
  add(SelfCheckCase("FP32 NaN behind the length", {.wanted = kAll})
          .WithNanBehindLength());
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    const auto named = [type](absl::string_view what) {
      return absl::StrCat(Name(type), " ", what);
    };
    SelfCheckOutline products = kProducts;
    products.type = type;
    add(SelfCheckCase(
            named("causal"),
            {.type = type, .query_heads = 4, .query_length = 150, .width = 64})
            .WithCausal()
            .AtOnce());
    add(SelfCheckCase(named("band, bias, softcap"),
                      {.type = type, .width = 120})
            .WithBand()
            .AtOnce());
    add(SelfCheckCase(named("ALiBi, sinks"), {.type = type, .width = 64})
            .WithAlibiAndSinks()
            .AtOnce());
    // Values of another width are not for Hopper's own instructions.
    for (const int64_t width : {64, 128, 256}) {
      add(SelfCheckCase(named(absl::StrCat("width ", width)),
                        {.type = type,
                         .query_length = 150,
                         .width = width,
                         .value_width = width - 8}));
    }
    for (const int64_t width : {64, 128}) {
      add(SelfCheckCase(named(absl::StrCat("window, softcap, width ", width)),
                        {.type = type,
                         .query_heads = 4,
                         .query_length = 400,
                         .key_length = 700,
                         .width = width})
              .WithWindow());
    }
    add(SelfCheckCase(named("wide rows"), {.type = type, .width = 256})
            .WithDropout());
    for (const int64_t width : {64, 128}) {
      add(SelfCheckCase(named(absl::StrCat("mask, width ", width)),
                        {.type = type, .query_length = 40, .width = width})
              .WithMask()
              .AtOnce());
    }
    for (const int64_t width : {64, 128, 256}) {
      add(SelfCheckCase(named(absl::StrCat("few rows, width ", width)),
                        {.type = type,
                         .query_heads = 4,
                         .query_length = 1,
                         .key_length = width == 128 ? 3000 : 120,
                         .width = width}));
    }
    add(SelfCheckCase(named("products"), products).WithCausal().AtOnce());
    for (const int64_t width : {64, 120}) {
      add(SelfCheckCase(
              named(absl::StrCat("NaN behind the length, width ", width)),
              {.type = type, .query_length = 150, .width = width})
              .WithNanBehindLength());
    }
  }
  return cases;
}

}  // namespace attention
