// What a server's /metrics tells, by series.
#ifndef ATTENTION_TESTS_SERVICE_METRICS_PAGE_H_
#define ATTENTION_TESTS_SERVICE_METRICS_PAGE_H_

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/server.h"
#include "tests/service/http_caller.h"

namespace attention::test {

using Metrics = std::map<std::string, double>;

// Every series by its name with its labels.
inline Metrics Scrape(const server::Server& server) {
  Metrics metrics;
  const std::string page =
      HttpBody(HttpAnswer(server.http_address(), "/metrics"));
  const std::vector<std::string> lines =
      absl::StrSplit(page, '\n', absl::SkipEmpty());
  for (const std::string& line : lines) {
    if (line.front() == '#') continue;
    const size_t space = line.rfind(' ');
    double value = 0;
    EXPECT_TRUE(absl::SimpleAtod(line.substr(space + 1), &value)) << line;
    EXPECT_TRUE(metrics.emplace(line.substr(0, space), value).second)
        << "twice: " << line;
  }
  return metrics;
}

inline std::string OfCall(const std::string& name, const std::string& service,
                          const std::string& method,
                          const std::string& code = "",
                          const std::string& type = "unary") {
  return absl::StrCat(
      name, "{grpc_type=\"", type, "\",grpc_service=\"", service,
      "\",grpc_method=\"", method, "\"",
      code.empty() ? "" : absl::StrCat(",grpc_code=\"", code, "\""), "}");
}

inline std::string OfAttend(const std::string& name,
                            const std::string& code = "") {
  return OfCall(name, "attention.v1.AttentionService", "Attend", code);
}

inline std::string OfModel(const std::string& name, const std::string& api,
                           const std::string& more = "") {
  return absl::StrCat(name, "{api=\"", api,
                      "\",model=\"scaled_dot_product_attention\"", more, "}");
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_METRICS_PAGE_H_
