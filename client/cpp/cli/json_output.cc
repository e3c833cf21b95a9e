#include "client/cpp/cli/json_output.h"

#include <iostream>

namespace attention::cli {

void PrintJson(const nlohmann::ordered_json& json) {
  std::cout << json.dump(2, ' ', false,
                         nlohmann::json::error_handler_t::replace)
            << "\n";
}

}  // namespace attention::cli
