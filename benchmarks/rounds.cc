#include "benchmarks/rounds.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <istream>
#include <nlohmann/json.hpp>
#include <ostream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "benchmarks/machine_limits.h"

namespace attention::bench {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::json;

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Short calls are timed in batches, which the clock itself does not lengthen.
constexpr double kShortestBatch = 50e-6;  // seconds

absl::StatusOr<Json> Attend(Runner& runner, double seconds) {
  const auto batch_of = [&runner](int64_t calls) -> absl::StatusOr<double> {
    const Clock::time_point start = Clock::now();
    for (int64_t n = 0; n < calls; ++n) {
      if (absl::Status status = runner.Run(); !status.ok()) return status;
    }
    return SecondsSince(start) / static_cast<double>(calls);
  };
  // Once to bring code and data back into the caches, once to know how long.
  absl::StatusOr<double> first = batch_of(1);
  if (first.ok()) first = batch_of(1);
  if (!first.ok()) return first.status();
  const auto calls = static_cast<int64_t>(
      std::max(1.0, std::ceil(kShortestBatch / std::max(*first, 1e-9))));
  std::vector<double> each;
  const Clock::time_point start = Clock::now();
  do {
    const absl::StatusOr<double> one = batch_of(calls);
    if (!one.ok()) return one.status();
    each.push_back(*one);
  } while (SecondsSince(start) < seconds);
  std::sort(each.begin(), each.end());
  const size_t half = each.size() / 2;
  const double median =
      each.size() % 2 == 1 ? each[half] : (each[half - 1] + each[half]) / 2;
  return Json{{"seconds", median},
              {"fastest", each.front()},
              {"calls", static_cast<int64_t>(each.size()) * calls}};
}

}  // namespace

absl::Status ServeRounds(const Case& shape, Runner& runner,
                         std::istream& commands, std::ostream& answers) {
  answers << Json{{"name", shape.Name()},
                  {"instruction_set", runner.InstructionSet()},
                  {"flops", shape.Flops()},
                  {"pairs", shape.Pairs()},
                  {"pairs_taking_part", runner.PairsTakingPart()},
                  {"bytes", shape.Bytes()}}
          << '\n'
          << std::flush;
  std::string command;
  double seconds = 0;
  while (commands >> command) {
    if (!(commands >> seconds)) {
      return absl::InvalidArgumentError(
          absl::StrCat("'", command, "': expected a number of seconds"));
    }
    Json answer;
    if (command == "attend") {
      absl::StatusOr<Json> timed = Attend(runner, seconds);
      if (!timed.ok()) return timed.status();
      answer = *std::move(timed);
    } else if (command == "limits") {
      answer = {{"flops", PeakFlops(shape.threads, seconds / 2)},
                {"read", ReadRate(shape.threads, seconds / 2)},
                {"instruction_set", LimitsTarget()}};
    } else {
      return absl::InvalidArgumentError(absl::StrCat(
          "'", command, "': expected attend SECONDS or limits SECONDS"));
    }
    answers << answer << '\n' << std::flush;
  }
  return absl::OkStatus();
}

}  // namespace attention::bench
