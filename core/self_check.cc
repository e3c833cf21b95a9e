#include "core/self_check.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/element.h"
#include "core/philox.h"
#include "core/reference/reference_backend.h"
#include "core/tensor.h"

namespace attention {
namespace {

// Queries are so large that a row's weights are those of a few keys: where they
// are those of all, a result that is wrong in every bit is as small as a right
// one.
constexpr double kQuerySpread = 12;

struct Outline {
  DataType type = DataType::kFloat32;
  int64_t query_heads = 2;
  int64_t kv_heads = 2;
  int64_t query_length = 70;
  int64_t key_length = 100;
  int64_t width = 40;
  int64_t value_width = 0;  // 0: as wide as queries and keys
  WantedOutputs wanted = {.lse = true};
};

// Inputs with the memory that they lie in.
class Case {
 public:
  Case(std::string name, const Outline& outline)
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

  // A copy's views would be of the original's tensors.
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
  Case(Case&&) noexcept = default;
  Case& operator=(Case&&) noexcept = default;

  const std::string& name() const { return name_; }
  const AttentionProblem& problem() const { return problem_; }

  Case&& WithCausal() && {
    problem_.masks.causal = Causal::kTopLeft;
    return std::move(*this);
  }
  Case&& WithBand() && {
    problem_.masks.window = {.left = 30, .right = 20};
    problem_.masks.bias = Make({outline_.query_length, outline_.key_length});
    problem_.softcap = 10;
    return std::move(*this);
  }
  Case&& WithWindow() && {
    problem_.masks.causal = Causal::kBottomRight;
    problem_.masks.window.left = 200;
    problem_.softcap = 10;
    return std::move(*this);
  }
  Case&& WithMask() && {
    const Shape shape = {outline_.query_length, outline_.key_length};
    problem_.masks.attend_mask = MakeOf(DataType::kBool, shape, 0);
    Tensor& mask = tensors_.back();
    for (int64_t n = 0; n < mask.element_count(); ++n) {
      mask.data()[n] = n % 3 == 0 ? std::byte{0} : std::byte{1};
    }
    return std::move(*this);
  }
  Case&& WithAlibiAndSinks() && {
    problem_.masks.query_offset = 20;
    const Shape heads = {outline_.query_heads};
    problem_.alibi_slopes = MakeOf(DataType::kFloat32, heads, 1);
    problem_.sinks = MakeOf(DataType::kFloat32, heads, 10);
    return std::move(*this);
  }
  Case&& WithDropout() && {
    problem_.dropout = {.training = true, .p = 0.3, .seed = 5};
    return std::move(*this);
  }
  Case&& WithScoring(Scoring scoring) && {
    problem_.scoring = std::move(scoring);
    return std::move(*this);
  }

  Case&& WithAdditive(int64_t hidden) && {
    Additive additive;
    additive.w_q = Make({outline_.width, hidden});
    additive.w_k = Make({outline_.width, hidden});
    additive.w_v = Make({hidden});
    return std::move(*this).WithScoring(additive);
  }
  Case&& WithBilinear() && {
    Bilinear bilinear;
    bilinear.m = Make({outline_.width, outline_.width});
    bilinear.scale = 0.05;
    return std::move(*this).WithScoring(bilinear);
  }

 private:
  TensorView Make(const Shape& shape, double spread = 1) {
    return MakeOf(outline_.type, shape, spread);
  }

  // Numbers between -spread and spread, others for every tensor.
  TensorView MakeOf(DataType type, const Shape& shape, double spread) {
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

  std::string name_;
  Outline outline_;
  AttentionProblem problem_;
  std::vector<Tensor> tensors_;
};

std::vector<Case> Cases() {
  constexpr WantedOutputs kAll = {.weights = true, .lse = true};
  constexpr Outline kGemm = {
      .query_length = 520, .key_length = 520, .width = 16, .wanted = kAll};
  std::vector<Case> cases;
  const auto add = [&](Case&& made) { cases.push_back(std::move(made)); };
  add(Case("FP32 causal, dropout, weights", {.wanted = kAll})
          .WithCausal()
          .WithDropout());
  add(Case("FP32 band, bias, softcap", {.width = 130}).WithBand());
  add(Case("FP32 ALiBi, sinks", {.wanted = kAll}).WithAlibiAndSinks());
  add(Case("FP32 additive", {.wanted = kAll}).WithAdditive(33));
  add(Case("FP32 Gaussian", {.width = 3, .wanted = kAll})
          .WithScoring(Gaussian{.sigma = 1}));
  add(Case("FP32 bilinear", {}).WithBilinear());
  add(Case("FP32 scale 0", {}).WithScoring(ScaledDotProduct{.scale = 0}));
  add(Case("FP32 few rows", {.query_length = 2, .key_length = 3000}));
  add(Case("FP32 products", kGemm).WithCausal());
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    const auto named = [type](absl::string_view what) {
      return absl::StrCat(Name(type), " ", what);
    };
    Outline products = kGemm;
    products.type = type;
    add(Case(named("causal"),
             {.type = type, .query_heads = 4, .query_length = 150, .width = 64})
            .WithCausal());
    add(Case(named("band, bias, softcap"), {.type = type, .width = 120})
            .WithBand());
    add(Case(named("ALiBi, sinks"), {.type = type, .width = 64})
            .WithAlibiAndSinks());
    // Values of another width are not for Hopper's own instructions.
    for (const int64_t width : {64, 128, 256}) {
      add(Case(named(absl::StrCat("width ", width)),
               {.type = type,
                .query_length = 150,
                .width = width,
                .value_width = width - 8}));
    }
    for (const int64_t width : {64, 128}) {
      add(Case(named(absl::StrCat("window, softcap, width ", width)),
               {.type = type,
                .query_heads = 4,
                .query_length = 400,
                .key_length = 700,
                .width = width})
              .WithWindow());
    }
    add(Case(named("wide rows"), {.type = type, .width = 256}).WithDropout());
    for (const int64_t width : {64, 128}) {
      add(Case(named(absl::StrCat("mask, width ", width)),
               {.type = type, .query_length = 40, .width = width})
              .WithMask());
    }
    for (const int64_t width : {64, 128, 256}) {
      add(Case(named(absl::StrCat("few rows, width ", width)),
               {.type = type,
                .query_heads = 4,
                .query_length = 1,
                .key_length = width == 128 ? 3000 : 300,
                .width = width}));
    }
    add(Case(named("products"), products).WithCausal());
  }
  return cases;
}

// What roundings of numbers up to 1 may come to; scores are up to some tens.
double Tolerance(DataType type) {
  switch (type) {
    case DataType::kFloat16:
      return 8e-3;
    case DataType::kBFloat16:
      return 4e-2;
    default:
      return 2e-4;
  }
}

struct Results {
  Tensor output, weights, lse;
};

// `kernel` is the one that was to answer, also where that failed.
absl::StatusOr<Results> Compute(const Backend& backend,
                                const ValidatedProblem& problem,
                                WorkerPool& workers, std::string& kernel) {
  Results results;
  const auto make = [](Tensor& tensor, DataType type, const Shape& shape) {
    absl::StatusOr<Tensor> made = Tensor::Create(type, shape);
    if (!made.ok()) return made.status();
    tensor = *std::move(made);
    return absl::OkStatus();
  };
  absl::Status status =
      make(results.output, problem.query.type, problem.output_shape);
  if (status.ok() && problem.wanted.weights) {
    status = make(results.weights, DataType::kFloat32, problem.weights_shape);
  }
  if (status.ok()) {
    status = make(results.lse, DataType::kFloat32, problem.lse_shape);
  }
  if (status.ok()) status = backend.Supports(problem);
  if (!status.ok()) return status;
  AttentionJob job;
  job.problem = &problem;
  job.outputs = {results.output.mutable_view(), results.weights.mutable_view(),
                 results.lse.mutable_view()};
  backend.Run(absl::MakeSpan(&job, 1), {workers});
  kernel = static_cast<std::string>(job.kernel);
  if (!job.status.ok()) return job.status;
  return results;
}

absl::Status Compare(absl::string_view tensor, const Tensor& found,
                     const Tensor& expected, double tolerance) {
  const std::vector<double> had = found.ToDoubles();
  const std::vector<double> wanted = expected.ToDoubles();
  for (size_t n = 0; n < wanted.size(); ++n) {
    // Not NaN either.
    if (std::abs(had[n] - wanted[n]) <=
        tolerance * std::max(1.0, std::abs(wanted[n]))) {
      continue;
    }
    return absl::InternalError(absl::StrCat(tensor, " element ", n, " is ",
                                            had[n], " (", wanted[n],
                                            " is expected)"));
  }
  return absl::OkStatus();
}

// `kernel` is the last that was used.
absl::Status Check(const ValidatedProblem& problem, const Results& expected,
                   const Backend& backend, WorkerPool& workers,
                   std::string& kernel) {
  const size_t devices = std::max<size_t>(1, backend.devices().size());
  // Devices take turns.
  for (size_t n = 0; n < devices; ++n) {
    const auto found = Compute(backend, problem, workers, kernel);
    if (!found.ok()) return found.status();
    const double fp32 = Tolerance(DataType::kFloat32);
    absl::Status status = Compare("output", found->output, expected.output,
                                  Tolerance(problem.query.type));
    if (status.ok()) {
      status = Compare("weights", found->weights, expected.weights, fp32);
    }
    if (status.ok()) status = Compare("lse", found->lse, expected.lse, fp32);
    if (!status.ok()) {
      return absl::InternalError(
          absl::StrCat("kernel ", kernel, ": ", status.message()));
    }
  }
  return absl::OkStatus();
}

// Until it agrees, or nothing more can be left out.
absl::Status CheckOrLeaveOut(const Case& made, Backend& backend,
                             const Backend& reference, WorkerPool& workers,
                             const OnLeftOut& on_left_out) {
  const absl::StatusOr<ValidatedProblem> problem = Validate(made.problem());
  if (!problem.ok()) return problem.status();
  std::string kernel;
  const auto expected = Compute(reference, *problem, workers, kernel);
  if (!expected.ok()) return expected.status();
  while (true) {
    absl::Status status = Check(*problem, *expected, backend, workers, kernel);
    if (status.ok()) return status;
    status =
        absl::InternalError(absl::StrCat(made.name(), ": ", status.message()));
    if (!backend.LeaveOut(kernel)) return status;
    on_left_out(kernel, status);
  }
}

}  // namespace

absl::Status SelfCheck(Backend& backend, WorkerPool& workers,
                       const OnLeftOut& on_left_out) {
  const std::unique_ptr<Backend> reference = MakeReferenceBackend();
  for (const Case& made : Cases()) {
    absl::Status status =
        CheckOrLeaveOut(made, backend, *reference, workers, on_left_out);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace attention
