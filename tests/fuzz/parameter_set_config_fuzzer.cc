// Any bytes either are a parameter set's config.json or are refused with a
// reason; what is accepted is a JSON object, names the parameters of its
// scoring function alone, and leaves options that Validate() can judge.
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <variant>

#include "core/validate.h"
#include "server/models/parameter_set_config.h"
#include "tests/fuzz/expect.h"

namespace attention::server {
namespace {

size_t ParametersOf(const Scoring& scoring) {
  if (std::holds_alternative<Additive>(scoring)) return 3;
  return std::holds_alternative<Bilinear>(scoring) ? 1 : 0;
}

// A problem of one query and one key, whatever the options.
void ValidateWith(const ParameterSetConfig& config) {
  static const float kOne = 1;
  AttentionProblem problem = config.defaults;
  problem.query = ContiguousView(DataType::kFloat32, {1, 1}, &kOne);
  problem.key_value.push_back({problem.query, problem.query});
  if (auto* additive = std::get_if<Additive>(&problem.scoring)) {
    additive->w_q = additive->w_k = problem.query;
    additive->w_v = ContiguousView(DataType::kFloat32, {1}, &kOne);
  } else if (auto* bilinear = std::get_if<Bilinear>(&problem.scoring)) {
    bilinear->m = problem.query;
  }
  const auto valid = Validate(problem);
  Expect(valid.ok() || !valid.status().message().empty(),
         "options are valid or refused with a reason");
}

}  // namespace
}  // namespace attention::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using attention::Expect;
  const std::string text(reinterpret_cast<const char*>(data), size);
  const auto config = attention::server::ParseParameterSetConfig(text);
  const auto again = attention::server::ParseParameterSetConfig(text + " \n");
  Expect(config.ok() == again.ok(), "white space at the end changes nothing");
  if (!config.ok()) {
    Expect(!config.status().message().empty(), "a refusal has a reason");
    return 0;
  }
  Expect(nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false)
             .is_object(),
         "what is accepted is a JSON object");
  Expect(config->parameters.size() ==
             attention::server::ParametersOf(config->defaults.scoring),
         "each parameter of the scoring function, and no other");
  attention::server::ValidateWith(*config);
  return 0;
}
