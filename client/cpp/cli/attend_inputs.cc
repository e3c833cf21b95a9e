#include "client/cpp/cli/attend_inputs.h"

#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cpp/cli/failure.h"
#include "client/cpp/src/request_tensors.h"
#include "core/formats/npy.h"
#include "core/formats/safetensors.h"

namespace attention::cli {
namespace {

bool IsInputName(absl::string_view name) {
  return absl::c_linear_search(InputNames(), name);
}

// "multi_head/bias" for "multi_head/bias/query": the cases that a file holds.
std::vector<std::string> CasesOf(const SafetensorsFile& file) {
  std::vector<std::string> cases;
  for (const auto& [name, tensor] : file.tensors) {
    absl::string_view prefix = name;
    if (absl::ConsumeSuffix(&prefix, "/query")) cases.emplace_back(prefix);
  }
  return cases;
}

absl::Status CheckCase(const InputFlags& flags, const SafetensorsFile& file) {
  const std::string query =
      flags.prefix.empty() ? "query" : absl::StrCat(flags.prefix, "/query");
  // Without a case, query may come from a file of its own.
  if (file.tensors.count(query) > 0) return absl::OkStatus();
  const std::vector<std::string> cases = CasesOf(file);
  if (flags.prefix.empty() && cases.empty()) return absl::OkStatus();
  const std::string listed =
      cases.empty()
          ? "the file has no cases"
          : absl::StrCat("the cases in it are ", absl::StrJoin(cases, ", "));
  return UsageError(flags.prefix.empty()
                        ? absl::StrCat(flags.safetensors,
                                       ": choose one with --case NAME; ",
                                       listed)
                        : absl::StrCat(flags.safetensors, ": no case \"",
                                       flags.prefix, "\"; ", listed));
}

// Puts one tensor of the file where it belongs; `name` is without its case. Of
// two names for one thing, the first in their order has it.
void Sort(absl::string_view name, Tensor& tensor, Inputs& inputs) {
  const absl::string_view input = name == "mask" ? "attend_mask" : name;
  absl::string_view result = name;
  absl::ConsumePrefix(&result, "expected_");
  bool used = false;
  if (IsInputName(input)) {
    used = inputs.tensors.emplace(input, std::move(tensor)).second;
  } else if (result == "output" || result == "weights" || result == "lse") {
    used = inputs.expected.emplace(result, std::move(tensor)).second;
  }
  if (!used) inputs.unused.emplace_back(name);
}

std::vector<std::string> Split(const SafetensorsFile& file, const char* name,
                               absl::string_view separator) {
  const auto found = file.metadata.find(name);
  if (found == file.metadata.end()) return {};
  return absl::StrSplit(found->second, separator, absl::SkipEmpty());
}

absl::Status LoadSafetensors(const InputFlags& flags, Inputs& inputs) {
  absl::StatusOr<SafetensorsFile> file = ReadSafetensors(flags.safetensors);
  if (!file.ok()) return file.status();
  if (absl::Status found = CheckCase(flags, *file); !found.ok()) return found;
  const std::string prefix =
      flags.prefix.empty() ? "" : absl::StrCat(flags.prefix, "/");
  for (auto& [full_name, tensor] : file->tensors) {
    absl::string_view name = full_name;
    if (!absl::ConsumePrefix(&name, prefix)) continue;
    Sort(name, tensor, inputs);
  }
  inputs.tokens = Split(*file, "tokens", " ");
  inputs.sentences = Split(*file, "sentences", " | ");
  return absl::OkStatus();
}

absl::Status CheckComplete(const InputFlags& flags, const Inputs& inputs) {
  for (const char* name : {"query", "key", "value"}) {
    if (inputs.tensors.count(name) > 0) continue;
    if (flags.safetensors.empty()) {
      return UsageError(absl::StrCat("no ", name, ": give --input FILE or --",
                                     name, " FILE.npy"));
    }
    return absl::NotFoundError(absl::StrCat(
        flags.safetensors, ": no tensor \"",
        flags.prefix.empty() ? "" : absl::StrCat(flags.prefix, "/"), name,
        "\"; --", name, " FILE.npy can give it"));
  }
  return absl::OkStatus();
}

}  // namespace

const std::vector<std::string>& InputNames() {
  static const std::vector<std::string> all = [] {
    std::vector<std::string> names = {"query", "key", "value"};
    const client::AttendRequest request;
    client::ForEachOptionalTensor(request, [&](const char* name, const auto&) {
      names.emplace_back(name);
    });
    names.insert(names.end(), {"w_q", "w_k", "w_v", "m"});
    return names;
  }();
  return all;
}

absl::StatusOr<Inputs> LoadInputs(const InputFlags& flags) {
  Inputs inputs;
  if (!flags.safetensors.empty()) {
    absl::Status loaded = LoadSafetensors(flags, inputs);
    if (!loaded.ok()) return loaded;
  } else if (!flags.prefix.empty()) {
    return UsageError("--case NAME needs --input FILE");
  }
  for (const auto& [name, path] : flags.npy) {
    absl::StatusOr<Tensor> tensor = ReadNpy(path);
    if (!tensor.ok()) {
      return absl::Status(
          tensor.status().code(),
          absl::StrCat("--", absl::StrReplaceAll(name, {{"_", "-"}}), ": ",
                       tensor.status().message()));
    }
    inputs.tensors[name] = *std::move(tensor);
  }
  if (absl::Status complete = CheckComplete(flags, inputs); !complete.ok()) {
    return complete;
  }
  return inputs;
}

}  // namespace attention::cli
