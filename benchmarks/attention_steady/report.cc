#include "benchmarks/attention_steady/report.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/types/span.h"

namespace attention::bench {
namespace {

std::string Figure(double ratio, double wanted) {
  const std::string text = absl::StrFormat("%.2f", ratio);
  return ratio > wanted ? absl::StrCat("**", text, "**") : text;
}

void AddIfNew(std::vector<std::string>& names, const std::string& name) {
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    names.push_back(name);
  }
}

// One scoring function: a line per kind of values, a column per place.
std::string TableOfValues(const std::string& scoring,
                          const std::vector<ValuesRatio>& all) {
  std::vector<std::string> places, kinds;
  for (const ValuesRatio& ratio : all) {
    AddIfNew(places, ratio.where);
    AddIfNew(kinds, ratio.values);
  }
  std::string table = absl::StrCat("| ", scoring, " |");
  std::string line = "|---|";
  for (const std::string& place : places) {
    absl::StrAppend(&table, " ", place, " |");
    absl::StrAppend(&line, "---|");
  }
  absl::StrAppend(&table, " worst |\n", line, "---|\n");
  for (const std::string& kind : kinds) {
    absl::StrAppend(&table, "| ", kind, " |");
    double worst = 0;
    double wanted = 0;
    for (const ValuesRatio& ratio : all) {
      if (ratio.scoring != scoring || ratio.values != kind) continue;
      absl::StrAppend(&table, " ", Figure(ratio.ratio, ratio.wanted), " |");
      worst = std::max(worst, ratio.ratio);
      wanted = ratio.wanted;
    }
    absl::StrAppend(&table, " ", Figure(worst, wanted), " |\n");
  }
  return table;
}

std::string TableOfSweeps(const std::vector<Sweep>& sweeps) {
  std::string table =
      "| sweep | worst ratio of neighbours | where | ns per 1,000 of work "
      "there | least in the sweep | most |\n|---|---|---|---|---|---|\n";
  for (const Sweep& sweep : sweeps) {
    const size_t at = sweep.WorstPlace();
    const auto [least, most] =
        std::minmax_element(sweep.points.begin(), sweep.points.end(),
                            [](const Sweep::Point& a, const Sweep::Point& b) {
                              return a.SecondsPerWork() < b.SecondsPerWork();
                            });
    const auto cost = [](const Sweep::Point& point) {
      return absl::StrFormat("%.1f", 1e12 * point.SecondsPerWork());
    };
    const Sweep::Point& first = sweep.points[at];
    const Sweep::Point& second = sweep.points[at + 1];
    absl::StrAppend(&table, "| ", sweep.scoring, ", ", sweep.name, " | ",
                    Figure(sweep.WorstRatio(), kWantedOfNeighbours), " | ",
                    first.extent, " to ", second.extent, " | ", cost(first),
                    " to ", cost(second), " | ", cost(*least), " at ",
                    least->extent, " | ", cost(*most), " at ", most->extent,
                    " |\n");
  }
  return table;
}

}  // namespace

std::string ToMarkdown(const std::vector<ValuesRatio>& values,
                       const std::vector<Sweep>& sweeps) {
  std::string text;
  if (!values.empty()) {
    absl::StrAppend(&text,
                    "Time over that of normal numbers; wanted: at most 1.2, "
                    "with NaN at most 3.\n\n");
    std::vector<std::string> scorings;
    for (const ValuesRatio& ratio : values) AddIfNew(scorings, ratio.scoring);
    for (const std::string& scoring : scorings) {
      absl::StrAppend(&text, TableOfValues(scoring, values), "\n");
    }
  }
  if (!sweeps.empty()) {
    absl::StrAppend(&text,
                    "Time per work from one extent to the next; wanted: at "
                    "most 1.5.\n\n",
                    TableOfSweeps(sweeps));
  }
  return text;
}

std::string ToJson(const std::vector<ValuesRatio>& values,
                   const std::vector<Sweep>& sweeps) {
  nlohmann::json json = {{"values", nlohmann::json::array()},
                         {"shapes", nlohmann::json::array()}};
  for (const ValuesRatio& each : values) {
    json["values"].push_back({{"scoring", each.scoring},
                              {"values", each.values},
                              {"where", each.where},
                              {"ratio", each.ratio},
                              {"wanted", each.wanted},
                              {"normal_seconds", each.normal_seconds}});
  }
  for (const Sweep& sweep : sweeps) {
    nlohmann::json points = nlohmann::json::array();
    for (const Sweep::Point& point : sweep.points) {
      points.push_back({{"extent", point.extent},
                        {"seconds", point.seconds},
                        {"work", point.work}});
    }
    json["shapes"].push_back({{"scoring", sweep.scoring},
                              {"sweep", sweep.name},
                              {"worst", sweep.WorstRatio()},
                              {"wanted", kWantedOfNeighbours},
                              {"points", points}});
  }
  return json.dump(2);
}

}  // namespace attention::bench
