#include "benchmarks/attention_steady/values.h"

#include <cmath>
#include <functional>
#include <iostream>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attention::bench {
namespace {

constexpr double kWantedOfFinite = 1.2;
constexpr double kWantedOfNan = 3;

using Change = std::function<void(Inputs&)>;

// One kind of numbers. What is not finite is so in keys that a mask takes out
// of some rows: it is timed beside the same mask over normal numbers.
struct Kind {
  std::string name;
  Change change;
  Change mask = {};
};

// Multiplies queries and keys.
Change Times(double factor) {
  return [factor](Inputs& inputs) {
    for (const char* name : {"query", "key"}) {
      inputs.Change(name,
                    [&](int64_t, int64_t, double x) { return factor * x; });
    }
  };
}

// Replaces the numbers of queries and keys, each by itself.
Change Each(double (*number)(int64_t column, double was)) {
  return [number](Inputs& inputs) {
    for (const char* name : {"query", "key"}) {
      inputs.Change(name, [&](int64_t, int64_t column, double was) {
        return number(column, was);
      });
    }
  };
}

Change TimesInValues(double factor) {
  return [factor](Inputs& inputs) {
    inputs.Change("value",
                  [&](int64_t, int64_t, double x) { return factor * x; });
  };
}

bool IsPlanted(int64_t key) { return key % 16 == 5; }

void MaskPlanted(Inputs& inputs) {
  inputs.Mask([](int64_t i, int64_t j) { return i % 2 == 1 || !IsPlanted(j); });
}

void MaskChequered(Inputs& inputs) {
  inputs.Mask([](int64_t i, int64_t j) { return (i + j) % 2 == 1; });
}

// In every element.
Change Infinity(const char* name) {
  return [name](Inputs& inputs) {
    inputs.Change(name, [](int64_t, int64_t, double) {
      return std::numeric_limits<double>::infinity();
    });
  };
}

// In one element of each such row; the extents before it are multiples of 16.
Change Nan(const char* name) {
  return [name](Inputs& inputs) {
    inputs.Change(name, [](int64_t row, int64_t column, double was) {
      return IsPlanted(row) && column == 1
                 ? std::numeric_limits<double>::quiet_NaN()
                 : was;
    });
  };
}

std::vector<Kind> AllKinds() {
  std::vector<Kind> kinds;
  for (const double factor :
       {1e-6, 1e-3, 0.05, 0.1, 0.2, 0.3, 3.0, 10.0, 30.0}) {
    kinds.push_back({absl::StrCat("times ", factor), Times(factor)});
  }
  kinds.push_back({"zeros", Each([](int64_t, double) { return 0.0; })});
  kinds.push_back({"constants", Each([](int64_t, double) { return 0.5; })});
  kinds.push_back({"subnormals", Times(1e-40)});
  kinds.push_back({"one huge term per row", Each([](int64_t column, double x) {
                     return column == 0 ? 60 : x;
                   })});
  kinds.push_back({"terms of one sign",
                   Each([](int64_t, double x) { return std::abs(x); })});
  kinds.push_back(
      {"far from the origin", Each([](int64_t, double x) { return 100 + x; })});
  kinds.push_back({"values times 1e-30", TimesInValues(1e-30)});
  kinds.push_back({"values times 1e30", TimesInValues(1e30)});
  kinds.push_back({"NaN in masked keys", Nan("key"), MaskPlanted});
  kinds.push_back({"NaN in masked values", Nan("value"), MaskPlanted});
  kinds.push_back({"infinity in all keys, half of them masked", Infinity("key"),
                   MaskChequered});
  kinds.push_back({"infinity in all values, half of them masked",
                   Infinity("value"), MaskChequered});
  return kinds;
}

struct Place {
  const char* name;
  int64_t batch, heads, query_length, key_length;
};

constexpr Place kPlaces[] = {{"prefill", 1, 4, 512, 512},
                             {"small batch", 8, 4, 128, 128},
                             {"small", 2, 2, 8, 16},
                             {"decode", 16, 1, 1, 4096}};

absl::StatusOr<Timed> Make(const Case& shape, const Change& change) {
  auto runner = Runner::Create(shape, [&](Inputs& inputs) {
    MakeParametersUniform(shape, inputs);
    if (change) change(inputs);
  });
  if (!runner.ok()) return runner.status();
  Timed timed;
  timed.runner = *std::move(runner);
  return timed;
}

// The kind's time and that of normal numbers, in turns.
absl::StatusOr<ValuesRatio> Measure(const Case& shape, const Kind& kind,
                                    const Effort& effort) {
  std::vector<Timed> pair;
  for (const bool changed : {false, true}) {
    auto timed = Make(shape, [&](Inputs& inputs) {
      if (kind.mask) kind.mask(inputs);
      if (changed) kind.change(inputs);
    });
    if (!timed.ok()) return timed.status();
    pair.push_back(*std::move(timed));
  }
  absl::Status status = MeasureInTurns(absl::MakeSpan(pair), effort);
  if (!status.ok()) return status;
  ValuesRatio ratio;
  ratio.scoring = shape.scoring;
  ratio.values = kind.name;
  ratio.ratio = pair[1].seconds / pair[0].seconds;
  ratio.normal_seconds = pair[0].seconds;
  ratio.wanted = kind.mask ? kWantedOfNan : kWantedOfFinite;
  return ratio;
}

}  // namespace

absl::StatusOr<std::vector<ValuesRatio>> MeasureValues(
    const std::string& scoring, const Case& case_of_backend,
    const Effort& effort) {
  std::vector<ValuesRatio> all;
  for (const Place& place : kPlaces) {
    for (const char* type : {"FP32", "BF16"}) {
      Case shape = case_of_backend;
      shape.batch = place.batch;
      shape.query_heads = place.heads;
      shape.query_length = place.query_length;
      shape.key_length = place.key_length;
      shape.type = type;
      shape.scoring = scoring;
      const std::string where = absl::StrCat(place.name, " ", type);
      std::cerr << "values: " << scoring << ", " << where << '\n';
      for (const Kind& kind : AllKinds()) {
        auto ratio = Measure(shape, kind, effort);
        if (!ratio.ok()) return ratio.status();
        ratio->where = where;
        all.push_back(*std::move(ratio));
      }
    }
  }
  return all;
}

void MakeParametersUniform(const Case& shape, Inputs& inputs) {
  uint64_t state = 1;
  const auto fill = [&](const char* name, int64_t fan_in) {
    const double within = 1 / std::sqrt(static_cast<double>(fan_in));
    inputs.Change(name, [&](int64_t, int64_t, double) {
      state = state * 6364136223846793005 + 1442695040888963407;
      return within * (static_cast<double>(state >> 40) * 0x1p-23 - 1);
    });
  };
  fill("w_q", shape.width);
  fill("w_k", shape.width);
  fill("w_v", shape.HiddenWidth());
  fill("m", shape.width);
}

}  // namespace attention::bench
