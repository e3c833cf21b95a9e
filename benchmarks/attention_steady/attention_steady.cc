// attention-steady: whether time depends on shapes alone, and on those without
// steps.

#include <CLI/CLI.hpp>
#include <fstream>
#include <iostream>
#include <string>
#include <vector>

#include "benchmarks/attention_steady/report.h"
#include "benchmarks/attention_steady/sweeps.h"
#include "benchmarks/attention_steady/values.h"
#include "core/engine.h"

namespace attention::bench {
namespace {

constexpr const char* kAbout =
    R"(Measures whether the time of attention depends on shapes alone, and on those
without steps. Prints Markdown tables, and progress on standard error.

values  The time of other numbers over that of normally distributed ones, with
        each scoring function, for a prefill (B1 H4 L512), a small batch (B8 H4
        L128), a small problem (B2 H2 Lq8 Lk16) and decode (B16 H1 Lq1 Lk4096),
        of width 64, FP32 and BF16. The parameters of additive and bilinear
        scoring stay as they are, uniform within 1/sqrt(D). Wanted: at most
        1.2. NaN is planted in every 16th key (or value), which a mask takes out
        of every other row; it is held against the same mask over normal
        numbers. Wanted: at most 3.
shapes  Sweeps of D, Dv, h, Lq and Lk, 64 keys and 16 queries (decode: 1), all
        widths 64 but for the one that is swept. Wanted: from one extent to the
        next, time per work differs by at most 1.5. Work is counted in
        multiply-adds: 40,000 for a call, 8 for each element of query, key,
        value, output and parameter, 1 for each of a projection, and for each
        pair of a query and a key 20, 1 for each term of its score (8 for each
        tanh) and 1 for each element of its value.

Every figure is a shortest processor time over several rounds, in which
whatever is compared takes turns. Still, leave the machine alone meanwhile.

Examples:
  benchmarks/steady --quick --scoring gaussian
  benchmarks/steady --only shapes --json shapes.json)";

struct Flags {
  std::vector<std::string> scorings = {"dot", "additive", "gaussian",
                                       "bilinear"};
  std::string only, markdown, json;
  bool quick = false;
  int rounds = 0;
  Case shape;
};

int Failed(const absl::Status& status) {
  std::cerr << "attention-steady: " << status.message() << "\n";
  return 1;
}

// True where there is nothing to write or it could be written.
bool Write(const std::string& path, const std::string& text) {
  if (path.empty()) return true;
  std::ofstream file(path);
  file << text << "\n";
  file.close();
  if (file.good()) return true;
  std::cerr << "attention-steady: cannot write " << path << "\n";
  return false;
}

int Run(const Flags& flags) {
  Effort effort;
  if (flags.quick) effort = {.rounds = 5, .seconds = 0.002};
  if (flags.rounds > 0) effort.rounds = flags.rounds;
  std::vector<ValuesRatio> values;
  std::vector<Sweep> sweeps;
  for (const std::string& scoring : flags.scorings) {
    if (flags.only != "shapes") {
      auto more = MeasureValues(scoring, flags.shape, effort);
      if (!more.ok()) return Failed(more.status());
      values.insert(values.end(), more->begin(), more->end());
    }
    if (flags.only != "values") {
      auto more = MeasureSweeps(scoring, flags.shape, effort);
      if (!more.ok()) return Failed(more.status());
      sweeps.insert(sweeps.end(), more->begin(), more->end());
    }
  }
  const std::string markdown = ToMarkdown(values, sweeps);
  std::cout << markdown;
  const bool written = Write(flags.markdown, markdown) &&
                       Write(flags.json, ToJson(values, sweeps));
  return written ? 0 : 1;
}

int Main(int argc, char** argv) {
  CLI::App app{kAbout};
  Flags flags;
  app.add_option("--only", flags.only, "one of the two")
      ->check(CLI::IsMember({"values", "shapes"}));
  app.add_option("--scoring", flags.scorings, "these alone: dot,gaussian")
      ->delimiter(',')
      ->check(CLI::IsMember({"dot", "additive", "gaussian", "bilinear"}));
  app.add_flag("--quick", flags.quick,
               "fewer and shorter rounds: a first look");
  app.add_option("--rounds", flags.rounds,
                 "15 where not given, 5 with --quick");
  app.add_option("--threads", flags.shape.threads)->capture_default_str();
  app.add_option("--backend", flags.shape.backend)
      ->check(CLI::IsMember(BackendNames()))
      ->capture_default_str();
  app.add_option("--markdown", flags.markdown, "also write the tables here");
  app.add_option("--json", flags.json, "write every figure here");
  CLI11_PARSE(app, argc, argv);
  return Run(flags);
}

}  // namespace
}  // namespace attention::bench

// NOLINTNEXTLINE(bugprone-exception-escape): ends the program, which is right
int main(int argc, char** argv) { return attention::bench::Main(argc, argv); }
