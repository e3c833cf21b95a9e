#include "benchmarks/attention_steady/sweeps.h"

#include <algorithm>
#include <iostream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "benchmarks/attention_steady/values.h"

namespace attention::bench {
namespace {

// In multiply-adds.
constexpr double kCall = 40'000;  // validation, planning, handing out
constexpr double kElement = 8;    // read, converted and packed
constexpr double kPair = 20;      // exponential, maximum, sum
constexpr double kTanh = 8;       // one term of an additive score

constexpr int64_t kExtents[] = {1,    2,    3,    4,    6,    8,     12,
                                16,   24,   32,   48,   64,   96,    128,
                                192,  256,  384,  512,  768,  1024,  1536,
                                2048, 3072, 4096, 6144, 8192, 12288, 16384};

// One extent of a case, and how far it goes.
struct Axis {
  const char* name;
  int64_t Case::*extent;
  int64_t most = 16384;
  int64_t query_length = 16;
};

std::vector<Axis> AxesOf(const std::string& scoring) {
  // M has the square of its width.
  const int64_t widest = scoring == "bilinear" ? 4096 : 16384;
  std::vector<Axis> axes = {
      {"D", &Case::width, widest}, {"D, decode", &Case::width, widest, 1},
      {"Dv", &Case::value_width},  {"Lq", &Case::query_length},
      {"Lk", &Case::key_length},   {"Lk, decode", &Case::key_length, 16384, 1},
  };
  if (scoring == "additive") axes.push_back({"h", &Case::hidden_width});
  return axes;
}

absl::StatusOr<Sweep> Measure(const Case& others, const Axis& axis,
                              const Effort& effort) {
  Sweep sweep;
  std::vector<Timed> all;
  for (const int64_t extent : kExtents) {
    if (extent > axis.most) break;
    Case shape = others;
    shape.*axis.extent = extent;
    auto runner = Runner::Create(
        shape, [&](Inputs& inputs) { MakeParametersUniform(shape, inputs); });
    if (!runner.ok()) return runner.status();
    all.emplace_back().runner = *std::move(runner);
    sweep.points.push_back({extent, 0, Work(shape)});
  }
  absl::Status status = MeasureInTurns(absl::MakeSpan(all), effort);
  if (!status.ok()) return status;
  for (size_t n = 0; n < all.size(); ++n) {
    sweep.points[n].seconds = all[n].seconds;
  }
  return sweep;
}

// Of point n and the next one.
double NeighbourRatio(const Sweep& sweep, size_t n) {
  const double ratio =
      sweep.points[n + 1].SecondsPerWork() / sweep.points[n].SecondsPerWork();
  return std::max(ratio, 1 / ratio);
}

}  // namespace

size_t Sweep::WorstPlace() const {
  size_t worst = 0;
  for (size_t n = 0; n + 1 < points.size(); ++n) {
    if (NeighbourRatio(*this, n) > NeighbourRatio(*this, worst)) worst = n;
  }
  return worst;
}

double Sweep::WorstRatio() const { return NeighbourRatio(*this, WorstPlace()); }

absl::StatusOr<std::vector<Sweep>> MeasureSweeps(const std::string& scoring,
                                                 const Case& case_of_backend,
                                                 const Effort& effort) {
  std::vector<Sweep> sweeps;
  for (const char* type : {"FP32", "BF16"}) {
    for (const Axis& axis : AxesOf(scoring)) {
      Case shape = case_of_backend;
      shape.query_heads = 1;
      shape.query_length = axis.query_length;
      shape.key_length = 64;
      shape.width = shape.value_width = shape.hidden_width = 64;
      shape.type = type;
      shape.scoring = scoring;
      const std::string name = absl::StrCat(axis.name, ", ", type);
      std::cerr << "shapes: " << scoring << ", " << name << '\n';
      auto sweep = Measure(shape, axis, effort);
      if (!sweep.ok()) return sweep.status();
      sweep->scoring = scoring;
      sweep->name = name;
      sweeps.push_back(*std::move(sweep));
    }
  }
  return sweeps;
}

double Work(const Case& shape) {
  const auto count = [](int64_t n) { return static_cast<double>(n); };
  const double pairs = count(shape.Pairs());
  const double queries =
      count(shape.batch * shape.query_heads * shape.query_length);
  const double keys = count(shape.batch * shape.KvHeads() * shape.KeyLength());
  const double width = count(shape.width);
  const double value_width = count(shape.ValueWidth());
  const double hidden = count(shape.HiddenWidth());
  double score = width;
  double projections = 0;
  if (shape.scoring == "additive") {
    score = kTanh * hidden;
    projections = (queries + keys) * width * hidden;
    projections += kElement * 2 * width * hidden;  // the parameters themselves
  } else if (shape.scoring == "bilinear") {
    projections = queries * width * width + kElement * width * width;
  }
  return kCall + kElement * (queries + keys) * (width + value_width) +
         projections + pairs * (kPair + score + value_width);
}

}  // namespace attention::bench
