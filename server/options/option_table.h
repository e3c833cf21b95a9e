#ifndef ATTENTION_SERVER_OPTIONS_OPTION_TABLE_H_
#define ATTENTION_SERVER_OPTIONS_OPTION_TABLE_H_

#include <string>
#include <variant>
#include <vector>

#include "server/options/option_kinds.h"

namespace attention::server {

struct OptionRow {
  const char* flag;   // "--grpc-port"
  const char* group;  // of --help
  std::variant<TextOption, ChoiceOption, ListOption, NumberOption<int>,
               NumberOption<int64_t>, SizeOption, TimeOption, SwitchOption>
      kind;
  std::string help;
};

/// Every option of the server: what flags, environment, config file, --help and
/// the checks go by.
const std::vector<OptionRow>& OptionTable();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_OPTION_TABLE_H_
