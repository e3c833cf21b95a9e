#ifndef ATTENTION_CLIENT_CLI_JSON_OUTPUT_H_
#define ATTENTION_CLIENT_CLI_JSON_OUTPUT_H_

#include <nlohmann/json.hpp>

namespace attention::cli {

/// Prints JSON to standard output. Text from outside may be anything: what is
/// not UTF-8 is replaced.
void PrintJson(const nlohmann::ordered_json& json);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_JSON_OUTPUT_H_
