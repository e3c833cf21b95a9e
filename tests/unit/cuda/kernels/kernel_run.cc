#include "tests/unit/cuda/kernels/kernel_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "core/cuda/emulation/emulated_kernels.h"
#include "core/cuda/kernels/limits.h"
#include "core/cuda/scoring.h"
#include "core/element.h"
#include "core/validate.h"
#include "gtest/gtest.h"
#include "tests/unit/cuda/kernels/kernel_memory.h"

namespace attention::cuda::test {
namespace {

// A parameter (heads, rows, columns) with an extent in front.
TensorView AsFour(TensorView view) {
  view.shape.insert(view.shape.begin(), 1);
  view.strides.insert(view.strides.begin(), 0);
  return view;
}

class Run {
 public:
  Run(const ValidatedProblem& problem, const RunOptions& options)
      : problem_(problem), options_(options) {}

  KernelResults Compute(const AttentionProblem& asked) {
    SetTensors();
    SetScoring();
    SetMasks();
    SetResults();
    Launch();
    return Results(asked);
  }

 private:
  using RowsIn = Rows;

  RowsIn GatherRows(const TensorView& view) {
    return {memory_.Gather(view), ElementOf(view.type),
            static_cast<int32_t>(view.shape[3]), view.shape[1], view.shape[2]};
  }

  // Blocks of keys, or of values, one after the other.
  RowsIn GatherBlocks(bool values) {
    const auto& first = problem_.key_value[0];
    const TensorView& like = values ? first.value : first.key;
    const int64_t width = like.shape[3];
    const int64_t bytes = width * ByteSize(like.type);
    const int64_t rows = problem_.batch * problem_.kv_heads;
    auto* to = memory_.Take<std::byte>(rows * problem_.key_length * bytes);
    for (const auto& block : problem_.key_value) {
      const TensorView& view = values ? block.value : block.key;
      Memory scratch;
      const auto* from = static_cast<const std::byte*>(scratch.Gather(view));
      for (int64_t n = 0; n < rows; ++n) {
        if (bytes == 0) continue;
        std::memcpy(to + (n * problem_.key_length + block.first_key) * bytes,
                    from + n * block.key_count * bytes,
                    static_cast<size_t>(block.key_count * bytes));
      }
    }
    return {to, ElementOf(like.type), static_cast<int32_t>(width),
            problem_.kv_heads, problem_.key_length};
  }

  void SetTensors() {
    args_.batch = problem_.batch;
    args_.query_heads = problem_.query_heads;
    args_.query_length = problem_.query_length;
    args_.key_length = problem_.key_length;
    args_.query = GatherRows(problem_.query);
    args_.key = GatherBlocks(/*values=*/false);
    args_.value = GatherBlocks(/*values=*/true);
  }

  // Rows in one piece become pages, each an allocation of its own that ends
  // with the last row.
  const void* const* CutIntoPages(RowsIn& rows) {
    const int64_t keys = options_.keys_per_page;
    const int64_t row_bytes = rows.width * ElementBytes(rows.type);
    const int64_t pages = CeilDivide(rows.length, keys);
    auto** const table = memory_.Take<const void*>(pages);
    const auto* const from = static_cast<const std::byte*>(rows.data);
    for (int64_t page = 0; page < pages; ++page) {
      const int64_t first = page * keys;
      const int64_t count = std::min(keys, rows.length - first);
      auto* const to = memory_.Take<std::byte>(
          ((rows.heads - 1) * keys + count) * row_bytes);
      table[page] = to;
      for (int64_t head = 0; head < rows.heads && row_bytes > 0; ++head) {
        std::memcpy(to + head * keys * row_bytes,
                    from + (head * rows.length + first) * row_bytes,
                    static_cast<size_t>(count * row_bytes));
      }
    }
    rows.data = nullptr;
    rows.length = keys;
    return table;
  }

  RowsIn Project(const RowsIn& from, const TensorView& matrix,
                 int64_t to_heads) {
    ProjectArgs project;
    project.batch = problem_.batch;
    project.from = from;
    project.matrix = memory_.Gather(AsFour(matrix));
    project.matrix_type = ElementOf(matrix.type);
    project.matrix_stride =
        matrix.strides[0] == 0 ? 0 : matrix.shape[1] * matrix.shape[2];
    project.to_heads = to_heads;
    project.to_width = static_cast<int32_t>(matrix.shape[2]);
    project.to = memory_.Take<float>(problem_.batch * to_heads * from.length *
                                     matrix.shape[2]);
    EXPECT_EQ(table_.project(project, ProjectShape(project), nullptr), 0);
    return {project.to, Element::kFloat32, project.to_width, to_heads,
            from.length};
  }

  void SetScoring() {
    const ScoringParts parts = PartsOf(problem_);
    const int64_t heads = problem_.query_heads;
    args_.score = parts.score;
    args_.factor = parts.factor;
    bool per_head = false;
    if (parts.query_matrix != nullptr) {
      args_.query = Project(args_.query, *parts.query_matrix, heads);
    }
    if (parts.key_matrix != nullptr) {
      per_head = parts.key_matrix->strides[0] != 0;
      args_.key = Project(args_.key, *parts.key_matrix,
                          per_head ? heads : problem_.kv_heads);
    }
    if (parts.term_weights != nullptr) {
      const TensorView& of = *parts.term_weights;
      const int64_t width = args_.key.width;
      auto* weights = memory_.Take<float>(heads * width);
      for (int64_t n = 0; n < heads * width; ++n) {
        weights[n] = static_cast<float>(LoadElement(
            of.type,
            of.data + n / width * of.strides[0] + n % width * of.strides[1]));
      }
      args_.term_weights = weights;
      args_.term_weight_stride = width;
      per_head = per_head || of.strides[0] != 0;
    }
    if (options_.shares_tiles && !per_head) {
      args_.heads_per_group = heads / problem_.kv_heads;
    }
  }

  void SetMasks() {
    args_.softcap = problem_.softcap.value_or(0);
    auto* ranges =
        memory_.Take<KeySpan>(problem_.batch * problem_.query_length);
    for (int64_t b = 0; b < problem_.batch; ++b) {
      for (int64_t i = 0; i < problem_.query_length; ++i) {
        const KeyRange range = KeysInRange(problem_, b, i);
        ranges[b * problem_.query_length + i] = {range.begin, range.end};
      }
    }
    args_.key_ranges = ranges;
    if (problem_.attend_mask) {
      memory_.Gather(*problem_.attend_mask, &args_.attend_mask);
    }
    if (problem_.bias) memory_.Gather(*problem_.bias, &args_.bias);
    SetPerHead();
    args_.dropout.active = problem_.dropout.p > 0 ? 1 : 0;
    args_.dropout.threshold =
        static_cast<uint32_t>(std::floor(std::ldexp(problem_.dropout.p, 32)));
    args_.dropout.seed = problem_.dropout.seed;
    args_.dropout.kept = static_cast<float>(1 / (1 - problem_.dropout.p));
    args_.uniform_empty_rows =
        problem_.empty_rows == EmptyRows::kUniform ? 1 : 0;
    args_.weights_after_dropout = problem_.wanted.weights_after_dropout ? 1 : 0;
  }

  void SetPerHead() {
    const int64_t heads = problem_.query_heads;
    auto* slopes = memory_.Take<float>(problem_.batch * heads);
    auto* positions = memory_.Take<double>(problem_.batch);
    auto* sinks = memory_.Take<float>(problem_.batch * heads);
    for (int64_t b = 0; b < problem_.batch; ++b) {
      positions[b] = RowPosition(problem_, b, 0);
      for (int64_t h = 0; h < heads; ++h) {
        slopes[b * heads + h] = problem_.AlibiSlope(b, h);
        sinks[b * heads + h] = problem_.Sink(b, h);
      }
    }
    if (problem_.alibi_slopes) {
      args_.alibi_slopes = slopes;
      args_.alibi_positions = positions;
    }
    if (problem_.sinks) args_.sinks = sinks;
  }

  void SetResults() {
    const int64_t rows = ResultRows(args_);
    args_.output_type = ElementOf(problem_.query.type);
    args_.output =
        memory_.Take(rows * args_.value.width * ByteSize(problem_.query.type));
    if (problem_.wanted.lse) args_.lse = memory_.Take<float>(rows);
    if (problem_.wanted.weights) {
      args_.weights = memory_.Take<float>(rows * args_.key_length);
    }
    args_.row_max = memory_.Take<float>(rows);
    args_.row_sum = memory_.Take<float>(rows);
    args_.marks = memory_.Take<RowMark>(rows);
    std::fill_n(args_.marks, rows, RowMark::kNone);
    args_.marked = memory_.Take<int32_t>(1);
    *args_.marked = 0;
    if (options_.keys_per_split > 0) {
      args_.keys_per_split = options_.keys_per_split;
      args_.splits = CeilDivide(args_.key_length, args_.keys_per_split);
      args_.partials = memory_.Take<float>(PartialFloats(args_));
    }
  }

  void Launch() {
    if (options_.way == Way::kGemm) {
      Gemms();
    } else {
      const bool mma = options_.way == Way::kMma;
      EXPECT_TRUE(!mma || ServesMma(args_));
      if (options_.keys_per_page > 0) return LaunchEntries();
      const auto attend = mma ? table_.attend_mma : table_.attend;
      const LaunchShape shape = mma ? MmaShape(args_) : AttendShape(args_);
      EXPECT_EQ(attend(args_, shape, nullptr), 0);
      if (args_.splits > 1) {
        EXPECT_EQ(table_.merge(args_, MergeShape(args_), nullptr), 0);
      }
      if (args_.weights != nullptr) {
        EXPECT_EQ(table_.weights(args_, WeightsShape(args_), nullptr), 0);
      }
    }
    AttentionArgs whole = args_;
    whole.splits = 1;
    EXPECT_EQ(table_.recompute(whole, RecomputeShape(whole), nullptr), 0);
  }

  // The problem in its pages between two others, which have no blocks.
  void LaunchEntries() {
    const bool mma = options_.way == Way::kMma;
    args_.key_pages = CutIntoPages(args_.key);
    args_.value_pages = CutIntoPages(args_.value);
    const auto launch = [&](const auto& kernel, const AttentionArgs& args,
                            const LaunchShape& shape) {
      const AttentionArgs entries[3] = {{}, args, {}};
      const int64_t first_blocks[3] = {0, 0, shape.blocks};
      EXPECT_EQ(
          kernel({.entries = entries, .first_blocks = first_blocks, .count = 3},
                 args, shape, nullptr),
          0);
    };
    if (mma) {
      LaunchShape shape = MmaShape(args_);
      shape.shared_bytes = static_cast<int32_t>(MmaEntryBytes(args_));
      launch(table_.attend_mma_entries, args_, shape);
    } else {
      launch(table_.attend_entries, args_, AttendShape(args_));
    }
    if (args_.splits > 1) {
      launch(table_.merge_entries, args_, MergeShape(args_));
    }
    AttentionArgs whole = args_;
    whole.splits = 1;
    launch(table_.recompute_entries, whole, RecomputeShape(whole));
  }

  // Plain sums in the order of the indices, as a library might have them.
  void Gemms() {
    const int64_t rows = ResultRows(args_);
    const int64_t keys = args_.key_length;
    const int64_t width = args_.key.width;
    SoftmaxRowsArgs softmax;
    softmax.problem = args_;
    softmax.rows = rows;
    auto* scores = memory_.Take<float>(rows * keys);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t key = 0; key < keys; ++key) {
        float sum = 0;
        for (int64_t d = 0; d < width; ++d) {
          sum += Load(args_.query, row * width + d) *
                 Load(args_.key, (KvRow(row) * keys + key) * width + d);
        }
        scores[row * keys + key] = sum;
      }
    }
    softmax.scores = scores;
    softmax.score_stride = softmax.probability_stride = keys;
    softmax.probabilities = scores;
    EXPECT_EQ(table_.softmax_rows(softmax, SoftmaxRowsShape(softmax), nullptr),
              0);
    FinishOutputArgs finish;
    finish.problem = args_;
    finish.rows = rows;
    const int64_t columns = args_.value.width;
    auto* pv = memory_.Take<float>(rows * columns);
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t c = 0; c < columns; ++c) {
        float sum = 0;
        for (int64_t key = 0; key < keys; ++key) {
          sum += scores[row * keys + key] *
                 Load(args_.value, (KvRow(row) * keys + key) * columns + c);
        }
        pv[row * columns + c] = sum;
      }
    }
    finish.pv = pv;
    EXPECT_EQ(table_.finish_output(finish, FinishOutputShape(finish), nullptr),
              0);
  }

  // The row of keys' heads that a result row reads.
  int64_t KvRow(int64_t row) const {
    const int64_t head = row / args_.query_length;
    return head / (args_.query_heads / args_.key.heads);
  }
  float Load(const RowsIn& rows, int64_t index) const {
    const DataType type = rows.type == Element::kFloat32 ? DataType::kFloat32
                          : rows.type == Element::kFloat16
                              ? DataType::kFloat16
                              : DataType::kBFloat16;
    return static_cast<float>(
        LoadElement(type, static_cast<const std::byte*>(rows.data) +
                              index * ElementBytes(rows.type)));
  }

  static Tensor Copy(DataType type, const Shape& shape, const void* from) {
    Tensor tensor = Tensor::Create(type, shape).value();
    if (tensor.byte_size() > 0) {
      std::memcpy(tensor.data(), from, tensor.byte_size());
    }
    return tensor;
  }

  KernelResults Results(const AttentionProblem& asked) const {
    KernelResults results;
    results.results.output =
        Copy(asked.query.type, problem_.output_shape, args_.output);
    if (args_.weights != nullptr) {
      results.results.weights =
          Copy(DataType::kFloat32, problem_.weights_shape, args_.weights);
    }
    if (args_.lse != nullptr) {
      results.results.lse =
          Copy(DataType::kFloat32, problem_.lse_shape, args_.lse);
    }
    results.marked_rows =
        std::count_if(args_.marks, args_.marks + ResultRows(args_),
                      [](RowMark mark) { return mark != RowMark::kNone; });
    return results;
  }

  const ValidatedProblem& problem_;
  const RunOptions& options_;
  const KernelTable& table_ = EmulatedKernels();
  Memory memory_;
  AttentionArgs args_;
};

}  // namespace

std::string NameOf(Way way) {
  static constexpr const char* kNames[] = {"attend", "mma", "gemm"};
  return kNames[static_cast<int>(way)];
}

attention::test::ProblemSpec FittedTo(Way way,
                                      attention::test::ProblemSpec spec,
                                      DataType sixteen_bits) {
  if (way != Way::kMma) return spec;
  if (spec.type == DataType::kFloat32) spec.type = sixteen_bits;
  spec.wanted.weights = false;
  if (spec.scale == 0) spec.scale = 1e-60;
  return spec;
}

KernelResults RunKernels(const AttentionProblem& problem,
                         const RunOptions& options) {
  const auto validated = Validate(problem);
  EXPECT_TRUE(validated.ok()) << validated.status();
  return Run(*validated, options).Compute(problem);
}

}  // namespace attention::cuda::test
