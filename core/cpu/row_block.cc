#include "core/cpu/row_block.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <variant>
#include <vector>

#include "core/cpu/bf16_products.h"
#include "core/cpu/bf16_tiles.h"
#include "core/cpu/care.h"
#include "core/cpu/careful_rows.h"
#include "core/cpu/prepare.h"
#include "core/cpu/result_memory.h"
#include "core/cpu/scratch.h"
#include "core/cpu/subnormals.h"
#include "core/element.h"
#include "core/philox.h"
#include "hwy/cache_control.h"

namespace attention::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr double kLn2 = 0.6931471805599453;

// Values may be read where they lie, unless their rows are so far apart that
// every one takes a page of its own.
constexpr int64_t kFarApart = 2048;

// A larger factor makes more than a rounding of a score of what was subnormal.
constexpr double kHugeFactor = 1e27;

class RowBlock {
 public:
  RowBlock(JobRun& run, int64_t index, Scratch& scratch)
      : run_(run),
        problem_(run.problem()),
        plan_(run.plan()),
        kernels_(run.kernels()),
        prepare_(run.problem(), run.plan(), run.kernels(), scratch),
        care_(run.problem(), run.plan(), run.kernels(), prepare_, scratch),
        bf16_(run.problem(), run.plan(), run.kernels(), scratch),
        dropout_(run.problem().dropout.p, run.problem().dropout.seed) {
    index_ = index;
    const int64_t lane = index / plan_.blocks_per_lane;
    const int64_t lanes_per_batch = problem_.query_heads / plan_.heads_per_lane;
    batch_ = lane / lanes_per_batch;
    first_head_ = lane % lanes_per_batch * plan_.heads_per_lane;
    kv_head_ = problem_.KvHead(first_head_);
    first_row_ = index % plan_.blocks_per_lane * plan_.row_block;
    keys_ = {0, problem_.key_length};
    rows_ = std::min(plan_.row_block, plan_.rows_per_lane - first_row_);
    care_.SetKeys(batch_, kv_head_);
    TakeMemory(scratch);
  }

  /// Everything, from the queries to the stored results. Rows that FP32 does
  /// not serve are added to `careful`.
  bool Run(std::vector<RowId>& careful);
  /// One piece of the keys alone; `partial` takes the rows' states.
  bool RunSplit(int64_t split, float* partial);
  /// The rest, given the states of all pieces, in order.
  bool RunMerge(const float* partials, std::vector<RowId>& careful);

  int64_t batch() const { return batch_; }

 private:
  // One tile of keys, within one block of the problem.
  struct KeyTile {
    const ValidatedProblem::Block* block;
    int64_t first;  // within that block
    int64_t count;
    int64_t first_key;  // among all keys
  };

  void TakeMemory(Scratch& scratch);
  // Products of BF16 write whole tiles of rows.
  int64_t PaddedRows() const {
    return plan_.bf16 ? Bf16Tiles::PaddedRows(plan_.row_block)
                      : plan_.row_block;
  }
  int64_t HeadOf(int64_t row) const {
    return first_head_ + (first_row_ + row) / problem_.query_length;
  }
  int64_t QueryOf(int64_t row) const {
    return (first_row_ + row) % problem_.query_length;
  }
  // Index of a row among all rows of the result.
  int64_t ResultRow(int64_t row) const {
    return (batch_ * problem_.query_heads + first_head_) *
               problem_.query_length +
           first_row_ + row;
  }

  void Begin();
  void SetRows();
  void SetQueries();
  void PackQueries();
  void AddQueries();
  bool AddBf16Queries();
  template <typename Visit>
  bool ForEachHead(const Visit& visit);
  void SetMasks();
  template <typename Visit>
  bool ForEachTile(const Visit& visit);
  void FillTile(const KeyTile& tile);
  void FillPackedTile(const KeyTile& tile, bool with_values);
  bool FillBf16Tile(const KeyTile& tile);
  void FillRowTile(const KeyTile& tile);
  void BringNext(const KeyTile& tile);
  void BringTile(const ValidatedProblem::Block& block, int64_t batch,
                 int64_t kv_head, int64_t first);
  int64_t RowBytes() const {  // of the result
    return problem_.value_width * ByteSize(problem_.query.type);
  }
  bool IsReadable(const RowSource& rows, int64_t width) const;
  void SetValues(const KeyTile& tile);
  bool Sweep();
  bool StoreWeights();
  void ScaleKept(const float* from, int64_t count, double factor, float* to);
  void StoreKeptWeights();
  float* WeightRow(int64_t row) const {
    return reinterpret_cast<float*>(run_.outputs().weights.data) +
           ResultRow(row) * problem_.key_length;
  }
  void Finish(std::vector<RowId>& careful);
  bool QueryHasNan(int64_t row) const;
  bool LosesSubnormals(int64_t row) const;
  bool NeedsCare(int64_t row);

  static void FillDropout(const void* context, int64_t row, int64_t first_key,
                          int64_t count, float* factors);

  JobRun& run_;
  const ValidatedProblem& problem_;
  const Plan& plan_;
  const Kernels& kernels_;
  Prepare prepare_;
  CareDecision care_;
  Bf16Tiles bf16_;
  DropoutPattern dropout_;

  int64_t index_ = 0;
  int64_t batch_ = 0;
  int64_t first_head_ = 0;
  int64_t kv_head_ = 0;
  int64_t first_row_ = 0;
  int64_t rows_ = 0;
  KeyRange keys_;  // that are looked at
  KeyRange all_;   // spans the ranges of all rows
  int64_t centre_key_ = -1;
  bool queries_packed_ = false;  // for products in FP32
  bool serves_bf16_ = false;     // the queries are there for those of BF16
  bool is_bf16_ = false;         // the tile that was filled last

  KeyRange* ranges_ = nullptr;
  int32_t* begin_ = nullptr;
  int32_t* end_ = nullptr;
  float* max_ = nullptr;
  double* sum_ = nullptr;
  float* output_ = nullptr;
  float* scores_ = nullptr;
  float* values_ = nullptr;
  float* inverse_ = nullptr;
  float** weight_rows_ = nullptr;
  float* kept_ = nullptr;
  float* kept_max_ = nullptr;       // [tile][row]
  KeyRange* kept_tiles_ = nullptr;  // the keys of each tile
  int64_t kept_count_ = 0;
  unsigned char** output_rows_ = nullptr;
  uint8_t* not_finite_ = nullptr;
  uint8_t* tiny_ = nullptr;
  const unsigned char** mask_rows_ = nullptr;
  const unsigned char** bias_rows_ = nullptr;
  TileArgs args_ = {};
};

void RowBlock::TakeMemory(Scratch& scratch) {
  const int64_t rows = plan_.row_block;
  ranges_ = scratch.Take<KeyRange>(rows);
  begin_ = scratch.Take<int32_t>(rows);
  end_ = scratch.Take<int32_t>(rows);
  max_ = scratch.Take<float>(rows);
  sum_ = scratch.Take<double>(rows);
  inverse_ = scratch.Take<float>(rows);
  weight_rows_ = scratch.Take<float*>(rows);
  output_rows_ = scratch.Take<unsigned char*>(rows);
  not_finite_ = scratch.Take<uint8_t>(rows);
  tiny_ = scratch.Take<uint8_t>(rows);
  mask_rows_ = scratch.Take<const unsigned char*>(rows);
  bias_rows_ = scratch.Take<const unsigned char*>(rows);
  if (plan_.keeps_weights) {
    kept_ = scratch.Take<float>(rows * plan_.kept_stride);
    kept_max_ = scratch.Take<float>(rows * plan_.kept_tiles);
    kept_tiles_ = scratch.Take<KeyRange>(plan_.kept_tiles);
  }
  output_ = scratch.Take<float>(PaddedRows() * plan_.padded_value_width);
  values_ = scratch.Take<float>(plan_.key_tile * plan_.padded_value_width);
  scores_ = scratch.Take<float>((kMaxGroupRows + 2) * kScoreStride);
}

void RowBlock::SetRows() {
  all_ = {problem_.key_length, 0};
  const bool same = !problem_.valid_lens && problem_.causal == Causal::kNone &&
                    !problem_.window.left && !problem_.window.right;
  for (int64_t r = 0; r < rows_; ++r) {
    const KeyRange range = same ? KeyRange{0, problem_.key_length}
                                : KeysInRange(problem_, batch_, QueryOf(r));
    ranges_[r] = range;
    max_[r] = kMinusInfinity;
    sum_[r] = 0;
    if (range.begin == range.end) continue;
    all_.begin = std::min(all_.begin, range.begin);
    all_.end = std::max(all_.end, range.end);
  }
  std::fill_n(output_, PaddedRows() * plan_.padded_value_width, 0.0F);
}

void RowBlock::SetQueries() {
  prepare_.SetHead(first_head_);
  if (plan_.method == Method::kGaussianDot) {
    // The first key that some row attends; none is needed where none does.
    centre_key_ = all_.begin;
    for (const auto& block : problem_.key_value) {
      const int64_t at = centre_key_ - block.first_key;
      if (at < 0 || at >= block.key_count) continue;
      prepare_.SetCentre(RowsOf(block.key, batch_, kv_head_, at));
    }
  }
  serves_bf16_ = plan_.bf16 && AddBf16Queries();
  if (!serves_bf16_) PackQueries();
}

void RowBlock::PackQueries() {
  // One head after the other, as the lane's rows are.
  const TensorView& query = problem_.query;
  const bool in_order =
      HeadOf(0) == HeadOf(rows_ - 1) ||
      query.strides[1] == query.strides[2] * problem_.query_length;
  if (!in_order ||
      !prepare_.UseQueries(RowsOf(query, batch_, HeadOf(0), QueryOf(0)))) {
    AddQueries();
  }
  prepare_.PackQueries(rows_);
  queries_packed_ = true;
}

// Visits the block's rows head by head; false as soon as a visit is.
template <typename Visit>
bool RowBlock::ForEachHead(const Visit& visit) {
  for (int64_t r = 0; r < rows_;) {
    const int64_t query = QueryOf(r);
    const int64_t count = std::min(rows_ - r, problem_.query_length - query);
    if (!visit(RowsOf(problem_.query, batch_, HeadOf(r), query), r, count)) {
      return false;
    }
    r += count;
  }
  return true;
}

void RowBlock::AddQueries() {
  ForEachHead([this](const RowSource& from, int64_t row, int64_t count) {
    prepare_.AddQueries(from, row, count);
    return true;
  });
}

bool RowBlock::AddBf16Queries() {
  prepare_.SkipQueries(rows_);
  return ForEachHead([this](const RowSource& from, int64_t row, int64_t count) {
    return bf16_.AddQueries(from, row, count);
  });
}

void RowBlock::SetMasks() {
  Epilogue& epilogue = args_.epilogue;
  const auto set = [this](const TensorView& view, const unsigned char** rows) {
    for (int64_t r = 0; r < rows_; ++r) {
      rows[r] = reinterpret_cast<const unsigned char*>(
          view.At(batch_, HeadOf(r), QueryOf(r), 0));
    }
  };
  if (problem_.attend_mask) {
    set(*problem_.attend_mask, mask_rows_);
    epilogue.mask_rows = mask_rows_;
    epilogue.mask_stride = problem_.attend_mask->strides[3];
  }
  if (problem_.bias) {
    set(*problem_.bias, bias_rows_);
    epilogue.bias_rows = bias_rows_;
    epilogue.bias_stride = problem_.bias->strides[3];
    epilogue.bias_type = ElementOf(problem_.bias->type);
  }
}

template <typename Visit>
bool RowBlock::ForEachTile(const Visit& visit) {
  for (const ValidatedProblem::Block& block : problem_.key_value) {
    const int64_t first_key = std::max(all_.begin, keys_.begin);
    const int64_t last_key = std::min(all_.end, keys_.end);
    const int64_t begin = std::max<int64_t>(0, first_key - block.first_key);
    const int64_t end = std::min(block.key_count, last_key - block.first_key);
    for (int64_t first = begin; first < end; first += plan_.key_tile) {
      if (!run_.BeginTile()) return false;
      visit(KeyTile{&block, first, std::min(plan_.key_tile, end - first),
                    block.first_key + first});
    }
  }
  return true;
}

void RowBlock::SetValues(const KeyTile& tile) {
  constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
  const RowSource values =
      RowsOf(tile.block->value, batch_, kv_head_, tile.first);
  const int64_t width = problem_.value_width;
  const bool readable =
      values.type == Element::kFloat32 && width == plan_.padded_value_width &&
      values.column_stride == kFloat && values.row_stride % kFloat == 0 &&
      (values.row_stride == width * kFloat ||
       std::abs(values.row_stride) < kFarApart) &&
      reinterpret_cast<uintptr_t>(values.data) % kFloat == 0;
  if (readable) {
    args_.values = reinterpret_cast<const float*>(values.data);
    args_.value_stride = values.row_stride / kFloat;
    return;
  }
  kernels_.widen_rows(values, tile.count, width, values_,
                      plan_.padded_value_width, plan_.padded_value_width);
  args_.values = values_;
  args_.value_stride = plan_.padded_value_width;
}

namespace {

// Rows that lie close together, as one stretch of memory.
ComingBytes Stretch(const RowSource& rows, int64_t count, int64_t width) {
  const int64_t row_bytes = width * (rows.type == Element::kFloat32 ? 4 : 2);
  const bool dense =
      rows.row_stride >= row_bytes && rows.row_stride <= 2 * row_bytes;
  return {rows.data,
          dense && count > 0 ? (count - 1) * rows.row_stride + row_bytes : 0};
}

}  // namespace

void RowBlock::BringTile(const ValidatedProblem::Block& block, int64_t batch,
                         int64_t kv_head, int64_t first) {
  const int64_t count = std::min(plan_.key_tile, block.key_count - first);
  args_.coming[0] = Stretch(RowsOf(block.key, batch, kv_head, first), count,
                            problem_.key_width);
  args_.coming[1] = Stretch(RowsOf(block.value, batch, kv_head, first), count,
                            problem_.value_width);
}

// What is read after a tile: the next one, or the next block of rows, which
// most likely the same thread computes, and where this one's results go.
void RowBlock::BringNext(const KeyTile& tile) {
  std::fill_n(args_.coming, kMaxComing, ComingBytes{});
  const int64_t next = tile.first + tile.count;
  if (next < tile.block->key_count && tile.block->first_key + next < all_.end) {
    return BringTile(*tile.block, batch_, kv_head_, next);
  }
  args_.coming[2] = {
      reinterpret_cast<const unsigned char*>(run_.outputs().output.data) +
          ResultRow(0) * RowBytes(),
      rows_ * RowBytes()};
  const int64_t index = index_ + 1;
  if (index >= plan_.blocks()) return;
  const int64_t lane = index / plan_.blocks_per_lane;
  const int64_t lanes_per_batch = problem_.query_heads / plan_.heads_per_lane;
  const int64_t batch = lane / lanes_per_batch;
  const int64_t head = lane % lanes_per_batch * plan_.heads_per_lane;
  const int64_t row = index % plan_.blocks_per_lane * plan_.row_block;
  if (row == 0 && all_.begin == 0) {
    BringTile(problem_.key_value.front(), batch, problem_.KvHead(head), 0);
  }
  const int64_t query = row % problem_.query_length;
  args_.coming[3] = Stretch(
      RowsOf(problem_.query, batch, head + row / problem_.query_length, query),
      std::min(plan_.row_block, problem_.query_length - query),
      problem_.query_width);
}

// False where the tile's numbers are to be multiplied in FP32.
bool RowBlock::FillBf16Tile(const KeyTile& tile) {
  if (!serves_bf16_ ||
      !bf16_.Pack(RowsOf(tile.block->key, batch_, kv_head_, tile.first),
                  RowsOf(tile.block->value, batch_, kv_head_, tile.first),
                  tile.count)) {
    return false;
  }
  FillTile(tile);
  args_.epilogue.factor = prepare_.DotFactor();
  bf16_.Fill(args_);
  return true;
}

void RowBlock::FillPackedTile(const KeyTile& tile, bool with_values) {
  is_bf16_ = FillBf16Tile(tile);
  if (is_bf16_) return;
  if (!queries_packed_) PackQueries();
  prepare_.PackKeys(RowsOf(tile.block->key, batch_, kv_head_, tile.first),
                    tile.count);
  BringNext(tile);
  args_.coming_lines = 0;
  for (const ComingBytes& coming : args_.coming) {
    args_.coming_lines += (coming.count + kLine - 1) / kLine;
  }
  if (with_values && problem_.value_width > 0) SetValues(tile);
  FillTile(tile);
}

// Rows that the kernels read in whole vectors where they lie.
bool RowBlock::IsReadable(const RowSource& rows, int64_t width) const {
  const int64_t size = rows.type == Element::kFloat32 ? 4 : 2;
  return (rows.type != Element::kFloat16 || kernels_.reads_half) &&
         width % kernels_.lanes == 0 && rows.column_stride == size &&
         rows.row_stride % size == 0 &&
         reinterpret_cast<intptr_t>(rows.data) % size == 0;
}

void RowBlock::FillRowTile(const KeyTile& tile) {
  FillTile(tile);
  const RowSource keys = RowsOf(tile.block->key, batch_, kv_head_, tile.first);
  const RowSource values =
      RowsOf(tile.block->value, batch_, kv_head_, tile.first);
  const bool widen = !IsReadable(keys, problem_.key_width) ||
                     !IsReadable(values, problem_.value_width);
  prepare_.SetKeyRows(keys, tile.count, widen, args_);
  if (!widen) {
    args_.value_rows = values.data;
    args_.value_row_stride = values.row_stride;
    return;
  }
  if (problem_.value_width > 0) {
    kernels_.widen_rows(values, tile.count, problem_.value_width, values_,
                        plan_.padded_value_width, plan_.padded_value_width);
  }
  args_.value_rows = reinterpret_cast<const unsigned char*>(values_);
  args_.value_row_stride =
      plan_.padded_value_width * static_cast<int64_t>(sizeof(float));
}

void RowBlock::FillTile(const KeyTile& tile) {
  for (int64_t r = 0; r < rows_; ++r) {
    const auto clamp = [&tile](int64_t key) {
      return static_cast<int32_t>(
          std::clamp<int64_t>(key - tile.first_key, 0, tile.count));
    };
    begin_[r] = clamp(ranges_[r].begin);
    end_[r] = clamp(ranges_[r].end);
  }
  prepare_.Fill(args_);
  args_.rows = rows_;
  args_.keys = tile.count;
  args_.value_width = plan_.padded_value_width;
  args_.begin = begin_;
  args_.end = end_;
  args_.epilogue.first_key = tile.first_key;
  args_.dropout_first_key = tile.first_key;
  args_.max = max_;
  args_.sum = sum_;
  args_.output = output_;
  args_.scores = scores_;
}

void RowBlock::FillDropout(const void* context, int64_t row, int64_t first_key,
                           int64_t count, float* factors) {
  const auto& block = *static_cast<const RowBlock*>(context);
  const auto kept = static_cast<float>(block.dropout_.scale());
  const int64_t head = block.HeadOf(row);
  const int64_t query = block.QueryOf(row);
  for (int64_t j = 0; j < count; ++j) {
    factors[j] = block.dropout_.Drops(block.batch_, head, query, first_key + j)
                     ? 0
                     : kept;
  }
}

bool RowBlock::Sweep() {
  return ForEachTile([this](const KeyTile& tile) {
    if (plan_.decode) {
      FillRowTile(tile);
      kernels_.attend_rows(args_);
    } else {
      FillPackedTile(tile, /*with_values=*/true);
      if (plan_.keeps_weights) {
        args_.kept = kept_ + tile.first_key;
        args_.kept_stride = plan_.kept_stride;
        args_.keep_after_dropout = problem_.wanted.weights_after_dropout;
        args_.tile_max = kept_max_ + kept_count_ * rows_;
        kept_tiles_[kept_count_++] = {tile.first_key,
                                      tile.first_key + tile.count};
      }
      (is_bf16_ ? kernels_.attend_bf16 : kernels_.attend_tile)(args_);
    }
  });
}

// A weight that is large beside a maximum of its time may be worth keeping
// where the factor alone is subnormal.
void RowBlock::ScaleKept(const float* from, int64_t count, double factor,
                         float* to) {
  constexpr double kShift = 0x1p64;
  if (factor == 0 || !(factor < 1 / kShift)) {
    kernels_.scale_row(from, count, static_cast<float>(factor), to);
    return;
  }
  kernels_.scale_row(from, count, static_cast<float>(factor * kShift), to);
  kernels_.scale_row(to, count, static_cast<float>(1 / kShift), to);
}

// Each tile's weights are relative to the maximum that was known then.
void RowBlock::StoreKeptWeights() {
  for (int64_t r = 0; r < rows_; ++r) {
    float* const to = WeightRow(r);
    int64_t done = 0;
    for (int64_t t = 0; t < kept_count_; ++t) {
      const KeyRange& keys = kept_tiles_[t];
      StoreZeros(to + done, keys.begin - done);
      const double rise =
          static_cast<double>(kept_max_[t * rows_ + r]) - max_[r];
      ScaleKept(kept_ + r * plan_.kept_stride + keys.begin,
                keys.end - keys.begin,
                sum_[r] == 0 ? 0 : std::exp2(rise) / sum_[r], to + keys.begin);
      done = keys.end;
    }
    StoreZeros(to + done, problem_.key_length - done);
  }
  // Stores past the caches are seen by other threads only after this.
  hwy::FlushStream();
}

bool RowBlock::StoreWeights() {
  if (plan_.keeps_weights) {
    StoreKeptWeights();
    return true;
  }
  const int64_t keys = problem_.key_length;
  auto* weights = reinterpret_cast<float*>(run_.outputs().weights.data);
  for (int64_t r = 0; r < rows_; ++r) {
    StoreZeros(weights + ResultRow(r) * keys, keys);
    inverse_[r] = static_cast<float>(1 / sum_[r]);
  }
  return ForEachTile([this, weights, keys](const KeyTile& tile) {
    FillPackedTile(tile, /*with_values=*/false);
    for (int64_t r = 0; r < rows_; ++r) {
      weight_rows_[r] = weights + ResultRow(r) * keys + tile.first_key;
    }
    (is_bf16_ ? kernels_.store_weights_bf16 : kernels_.store_weights)(
        args_, {.inverse_sum = inverse_,
                .weights = weight_rows_,
                .after_dropout = problem_.wanted.weights_after_dropout});
  });
}

void RowBlock::Finish(std::vector<RowId>& careful) {
  const int64_t row_bytes = RowBytes();
  auto* output = reinterpret_cast<unsigned char*>(run_.outputs().output.data);
  auto* lse = reinterpret_cast<float*>(run_.outputs().lse.data);
  for (int64_t r = 0; r < rows_; ++r) {
    output_rows_[r] = output + ResultRow(r) * row_bytes;
    if (!problem_.wanted.lse) continue;
    const double natural =
        max_[r] * kLn2 + std::log(sum_[r]) + prepare_.LogSumExpShift(r);
    StoreFloat(sum_[r] == 0 ? kMinusInfinity : static_cast<float>(natural),
               lse + ResultRow(r));
  }
  kernels_.finish_rows({.rows = rows_,
                        .width = problem_.value_width,
                        .output = output_,
                        .output_stride = plan_.padded_value_width,
                        .sum = sum_,
                        .type = ElementOf(problem_.query.type),
                        .to = output_rows_,
                        .not_finite = not_finite_,
                        .tiny = tiny_});
  for (int64_t r = 0; r < rows_; ++r) {
    if (NeedsCare(r)) careful.push_back({HeadOf(r), QueryOf(r)});
  }
}

bool RowBlock::QueryHasNan(int64_t row) const {
  for (int64_t i = 0; i < problem_.query_width; ++i) {
    const double element =
        LoadElement(problem_.query.type,
                    problem_.query.At(batch_, HeadOf(row), QueryOf(row), i));
    if (std::isnan(element)) return true;
  }
  return false;
}

// True where products of the row's scores may be more than the least that
// counts although a factor of theirs is subnormal, and was taken for 0.
bool RowBlock::LosesSubnormals(int64_t row) const {
  const DataType type = problem_.query.type;
  const bool is_product =
      std::holds_alternative<ScaledDotProduct>(problem_.scoring) ||
      std::holds_alternative<Bilinear>(problem_.scoring);
  if (!is_product || type == DataType::kFloat16) return false;
  const double factor = std::abs(problem_.scale) / kLn2;
  // Of the query itself, before it is scaled.
  const auto least =
      static_cast<float>(0x1p-126 / std::clamp(factor, 0x1p-100, 1.0));
  const auto most = static_cast<float>(kHugeFactor / std::max(factor, 1.0));
  if (HasMagnitudesBeyond(
          type, problem_.query.At(batch_, HeadOf(row), QueryOf(row), 0),
          problem_.query.strides[3], problem_.query_width, least, most)) {
    return true;
  }
  return std::holds_alternative<Bilinear>(problem_.scoring) &&
         type == DataType::kFloat32 &&
         prepare_.MagnitudePerElement(row) > kHugeFactor;
}

// True where a row's result has to come from FP64.
bool RowBlock::NeedsCare(int64_t row) {
  if (std::isnan(sum_[row])) {
    // A NaN in the query is one in every score. Others may be FP32's alone: a
    // query too small for it against an infinite key, a product that overflows,
    // a centre that is NaN, an infinite w_v taken apart into a sum and what is
    // subtracted from it. And keys that take no part keep weights of 0.
    return problem_.wanted.weights || !QueryHasNan(row);
  }
  // Perhaps a value of a key that takes no part, times 0.
  if (not_finite_[row] != 0) return true;
  // Perhaps the sum of products that were subnormal.
  if (tiny_[row] != 0 && run_.tiny_values().In(batch_, kv_head_)) return true;
  if (sum_[row] == 0) {
    return problem_.empty_rows == EmptyRows::kUniform &&
           problem_.key_length > 0;
  }
  if (LosesSubnormals(row)) return true;
  const double max = max_[row] * kLn2 + prepare_.LogSumExpShift(row);
  if (!care_.MayNeed(max)) return false;
  const CareDecision::Row known{.index = row,
                                .id = {HeadOf(row), QueryOf(row)},
                                .range = ranges_[row],
                                .max = max};
  return care_.IsFlat(known) || care_.LosesToCentre(known, centre_key_);
}

void RowBlock::Begin() {
  SetRows();
  if (all_.begin >= all_.end) return;
  SetQueries();
  SetMasks();
  if (dropout_.active()) {
    args_.dropout = FillDropout;
    args_.dropout_context = this;
  }
}

bool RowBlock::Run(std::vector<RowId>& careful) {
  Begin();
  if (!Sweep()) return false;
  if (problem_.wanted.weights && !StoreWeights()) return false;
  Finish(careful);
  return true;
}

bool RowBlock::RunSplit(int64_t split, float* partial) {
  keys_.begin = split * plan_.keys_per_split;
  keys_.end = std::min(problem_.key_length, keys_.begin + plan_.keys_per_split);
  Begin();
  if (!Sweep()) return false;
  const int64_t width = plan_.padded_value_width;
  for (int64_t r = 0; r < rows_; ++r) {
    float* to = partial + r * plan_.partial_floats();
    to[0] = max_[r];
    to[1] = static_cast<float>(sum_[r]);
    std::copy_n(output_ + r * width, width, to + 2);
  }
  return true;
}

bool RowBlock::RunMerge(const float* partials, std::vector<RowId>& careful) {
  Begin();
  const int64_t width = plan_.padded_value_width;
  for (int64_t r = 0; r < rows_; ++r) {
    float* const output = output_ + r * width;
    for (int64_t split = 0; split < plan_.splits; ++split) {
      const float* from =
          partials + (split * rows_ + r) * plan_.partial_floats();
      if (from[1] == 0) continue;
      const float top = std::max(max_[r], from[0]);
      const auto factor = [top](float max) {
        return max == top ? 1.0F : std::exp2(max - top);
      };
      const float mine = factor(max_[r]);
      const float other = factor(from[0]);
      sum_[r] = sum_[r] * mine + from[1] * other;
      max_[r] = top;
      for (int64_t i = 0; i < width; ++i) {
        output[i] = output[i] * mine + from[2 + i] * other;
      }
    }
  }
  if (problem_.wanted.weights && !StoreWeights()) return false;
  Finish(careful);
  return true;
}

}  // namespace

namespace {

// Calls work(block, rows that need care) on a block that has its memory, then
// computes those rows; by then the block's memory is theirs.
template <typename Work>
bool WithMemory(JobRun& run, int64_t index, const Work& work) {
  std::byte* const memory = ThreadMemory(run.scratch_bytes());
  if (memory == nullptr) {
    run.SetOutOfMemory();
    return false;
  }
  try {
    std::vector<RowId> careful;
    int64_t batch = 0;
    {
      const SubnormalsAreZero fast;
      Scratch scratch(memory);
      RowBlock block(run, index, scratch);
      batch = block.batch();
      if (!work(block, careful)) return false;
    }
    return ComputeCarefulRows(run, batch, careful);
  } catch (const std::bad_alloc&) {
    run.SetOutOfMemory();
    return false;
  }
}

}  // namespace

size_t RowBlockBytes(JobRun& run) {
  Scratch count;
  const RowBlock block(run, 0, count);
  return count.used();
}

bool ComputeRowBlock(JobRun& run, int64_t index) {
  return WithMemory(run, index,
                    [](RowBlock& block, std::vector<RowId>& careful) {
                      return block.Run(careful);
                    });
}

bool ComputeSplit(JobRun& run, int64_t index, int64_t split, float* partial) {
  return WithMemory(run, index,
                    [split, partial](RowBlock& block, std::vector<RowId>&) {
                      return block.RunSplit(split, partial);
                    });
}

bool MergeSplits(JobRun& run, int64_t index, const float* partials) {
  return WithMemory(run, index,
                    [partials](RowBlock& block, std::vector<RowId>& careful) {
                      return block.RunMerge(partials, careful);
                    });
}

}  // namespace attention::cpu
