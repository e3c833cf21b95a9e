#include "tests/support/random_problem.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/quantized.h"
#include "tests/support/random.h"

namespace attention::test {
namespace {

using Index = absl::Span<const int64_t>;

// Builds one problem, tensor by tensor.
class Builder {
 public:
  Builder(const ProblemSpec& spec, uint64_t seed)
      : spec_(spec), random_(seed) {}

  OwnedProblem Build() {
    AddTensors();
    AddScoring();
    AddMasks();
    AddPerHeadOptions();
    AttentionProblem& problem = owned_.problem;
    problem.softcap = spec_.softcap;
    problem.dropout = spec_.dropout;
    problem.empty_rows = spec_.empty_rows;
    problem.wanted = spec_.wanted;
    std::optional<int64_t>& top_k = problem.wanted.top_k;
    if (top_k) top_k = std::min(*top_k, spec_.key_length);
    if (top_k == 0) top_k.reset();
    return std::move(owned_);
  }

 private:
  Shape TensorShape(int64_t heads, int64_t length, int64_t width) const {
    if (spec_.rank == 2) return {length, width};
    if (spec_.rank == 3) return {spec_.batch, length, width};
    return {spec_.batch, heads, length, width};
  }

  double QueryOrKey(DataType type) {
    switch (spec_.magnitudes) {
      case Magnitudes::kOrdinary:
        return spec_.spread * random_.Normal();
      case Magnitudes::kFarFromOrigin:
        return spec_.centre + SpreadFarAway() * random_.Normal();
      case Magnitudes::kHuge:
        return Huge(type, 15);
      case Magnitudes::kSubnormal:
        return Subnormal(type);
    }
    return 0;
  }

  double Value() {
    if (spec_.magnitudes == Magnitudes::kHuge) return Huge(KeyType(), 30);
    if (spec_.magnitudes == Magnitudes::kSubnormal) return Subnormal(KeyType());
    return random_.Normal();
  }

  // 8 bits hold few numbers far from the origin. Were those of a row all within
  // two or three of them, sums of distances would have equal terms, which round
  // all the same way: the tolerances are for roundings that do not conspire.
  double SpreadFarAway() const {
    return spec_.spread * (IsScaledType(KeyType()) ? 16 : 1);
  }

  DataType KeyType() const { return spec_.key_type.value_or(spec_.type); }

  // Spread over all powers of ten up to 10^largest, of either sign.
  double Huge(DataType type, double largest) {
    const double most =
        type == DataType::kFloat16 ? std::log10(20000.0) : largest;
    const double size = std::pow(10.0, most * random_.Uniform());
    return random_.Chance(0.5) ? size : -size;
  }

  double Subnormal(DataType type) {
    const double smallest_normal =
        type == DataType::kFloat16 ? 0x1p-14 : 0x1p-126;
    return smallest_normal * (2 * random_.Uniform() - 1);
  }

  TensorView AddNumbers(const Shape& shape,
                        absl::FunctionRef<double()> number) {
    return owned_.Add(spec_.type, shape, spec_.layout,
                      [&](Index) { return number(); });
  }

  // Numbers of KeyType(), with a scale for each row where it has some.
  TensorView AddKeys(int64_t width, absl::FunctionRef<double()> number,
                     std::optional<TensorView>& scales) {
    const Shape shape = TensorShape(spec_.kv_heads, spec_.key_length, width);
    return AddQuantized(owned_, KeyType(), shape, spec_.layout, number, scales);
  }

  void AddTensors() {
    owned_.problem.query = AddNumbers(
        TensorShape(spec_.query_heads, spec_.query_length, spec_.width),
        [this] { return QueryOrKey(spec_.type); });
    KeyValueBlock block;
    block.key = AddKeys(
        KeyWidth(), [this] { return QueryOrKey(KeyType()); }, block.key_scale);
    block.value = AddKeys(
        spec_.value_width, [this] { return Value(); }, block.value_scale);
    owned_.problem.key_value.push_back(block);
    if (spec_.keys_per_block > 0) {
      SplitIntoBlocks(owned_.problem, spec_.keys_per_block);
    }
  }

  int64_t KeyWidth() const {
    const bool free = spec_.scoring == ScoringKind::kAdditive ||
                      spec_.scoring == ScoringKind::kBilinear;
    return free ? spec_.width + 3 : spec_.width;
  }

  // A parameter with entries of variance 1 / fan_in.
  TensorView AddParameter(Shape shape, int64_t fan_in) {
    if (spec_.per_head_parameters) {
      shape.insert(shape.begin(), spec_.query_heads);
    }
    const double spread = 1 / std::sqrt(static_cast<double>(fan_in));
    return owned_.Add(
        spec_.parameters_in_query_type ? spec_.type : DataType::kFloat32, shape,
        spec_.layout, [&](Index) { return spread * random_.Normal(); });
  }

  void AddScoring() {
    const int64_t hidden = spec_.hidden_width;
    Scoring& scoring = owned_.problem.scoring;
    switch (spec_.scoring) {
      case ScoringKind::kDotProduct:
        scoring = ScaledDotProduct{.scale = spec_.scale};
        break;
      case ScoringKind::kAdditive:
        scoring = Additive{
            .w_q = AddParameter({spec_.width, hidden}, spec_.width),
            .w_k = AddParameter({KeyWidth(), hidden}, KeyWidth()),
            .w_v = AddParameter(
                spec_.w_v_is_column ? Shape{hidden, 1} : Shape{hidden}, 1)};
        break;
      case ScoringKind::kGaussian:
        scoring = Gaussian{.sigma = spec_.sigma};
        break;
      case ScoringKind::kBilinear: {
        const Shape shape = {spec_.width, KeyWidth()};
        scoring = Bilinear{.m = AddParameter(shape, shape[0] * shape[1]),
                           .scale = spec_.scale.value_or(1.0)};
        break;
      }
    }
  }

  Shape MaskShape(MaskExtents extents) {
    Shape shape = FullMaskShape(spec_);
    if (extents == MaskExtents::kFewerDimensions) {
      shape.erase(shape.begin(), shape.end() - 2);
    } else if (extents == MaskExtents::kSomeOnes) {
      for (int64_t& extent : shape) {
        if (random_.Chance(0.5)) extent = 1;
      }
    }
    return shape;
  }

  void AddMasks() {
    Masks& masks = owned_.problem.masks;
    if (spec_.valid_lens != LengthsShape::kNone) {
      const int64_t batch = spec_.rank == 2 ? 1 : spec_.batch;
      const Shape shape = spec_.valid_lens == LengthsShape::kPerBatch
                              ? Shape{batch}
                              : Shape{batch, spec_.query_length};
      masks.valid_lens =
          owned_.Add(spec_.valid_lens_type, shape, spec_.layout, [&](Index) {
            return static_cast<double>(random_.Between(0, spec_.key_length));
          });
    }
    if (spec_.attend_mask != MaskExtents::kNone) {
      masks.attend_mask = owned_.Add(
          spec_.attend_mask_type, MaskShape(spec_.attend_mask), spec_.layout,
          [&](Index) { return random_.Chance(0.7) ? 1 : 0; });
    }
    if (spec_.bias != MaskExtents::kNone) {
      masks.bias =
          owned_.Add(spec_.bias_in_query_type ? spec_.type : DataType::kFloat32,
                     MaskShape(spec_.bias), spec_.layout, [&](Index) {
                       return random_.Chance(spec_.bias_masks)
                                  ? -std::numeric_limits<double>::infinity()
                                  : random_.Normal();
                     });
    }
    masks.causal = spec_.causal;
    masks.query_offset = spec_.query_offset;
    masks.key_offset = spec_.key_offset;
    masks.window = spec_.window;
    if (spec_.query_offsets_type) {
      masks.query_offsets = owned_.Add(
          *spec_.query_offsets_type, {spec_.rank == 2 ? 1 : spec_.batch},
          spec_.layout, [&](Index) {
            return static_cast<double>(
                random_.Between(-spec_.query_length, spec_.key_length));
          });
    }
  }

  std::optional<TensorView> AddPerHead(PerHeadShape extents,
                                       absl::FunctionRef<double()> number) {
    if (extents == PerHeadShape::kNone) return std::nullopt;
    const int64_t heads = spec_.rank == 4 ? spec_.query_heads : 1;
    const int64_t batch = spec_.rank == 2 ? 1 : spec_.batch;
    const Shape shape =
        extents == PerHeadShape::kPerHead ? Shape{heads} : Shape{batch, heads};
    return owned_.Add(DataType::kFloat32, shape, spec_.layout,
                      [&](Index) { return number(); });
  }

  void AddPerHeadOptions() {
    owned_.problem.alibi_slopes =
        AddPerHead(spec_.alibi_slopes, [&] { return 0.5 * random_.Normal(); });
    owned_.problem.sinks = AddPerHead(spec_.sinks, [&] {
      return random_.Chance(spec_.sinks_absent)
                 ? -std::numeric_limits<double>::infinity()
                 : 3 * random_.Normal();
    });
  }

  const ProblemSpec& spec_;
  Random random_;
  OwnedProblem owned_;
};

}  // namespace

OwnedProblem MakeProblem(const ProblemSpec& spec, uint64_t seed) {
  return Builder(spec, seed).Build();
}

Shape FullMaskShape(const ProblemSpec& spec) {
  if (spec.rank == 2) return {spec.query_length, spec.key_length};
  if (spec.rank == 3) return {spec.batch, spec.query_length, spec.key_length};
  return {spec.batch, spec.query_heads, spec.query_length, spec.key_length};
}

}  // namespace attention::test
