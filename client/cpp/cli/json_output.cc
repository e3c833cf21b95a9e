#include "client/cpp/cli/json_output.h"

#include <iostream>

namespace attention::cli {

void PrintJson(const nlohmann::ordered_json& json) {
  // In ASCII: there are control characters beyond, and terminals obey them.
  std::cout << json.dump(2, ' ', /*ensure_ascii=*/true,
                         nlohmann::json::error_handler_t::replace)
            << "\n";
}

}  // namespace attention::cli
