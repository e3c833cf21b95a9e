#include "server/telemetry/request_log.h"

#include <spdlog/spdlog.h>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "server/wire/status_table.h"

namespace attention::server {
namespace {

int64_t Microseconds(std::chrono::nanoseconds time) {
  return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
}

std::string Quoted(absl::string_view text) {
  return absl::StrCat("\"", absl::Utf8SafeCEscape(text), "\"");
}

}  // namespace

bool RequestRecord::Wanted() {
  return spdlog::should_log(spdlog::level::debug);
}

void RequestRecord::Log() const {
  if (refused) {
    spdlog::warn("refused id={} peer={} status={} message={}", Quoted(id), peer,
                 CodeName(status.code()), Quoted(status.message()));
    return;
  }
  if (!Wanted()) return;
  spdlog::debug(
      "attend id={} peer={} shapes={} backend={} kernel={} queue_us={} "
      "compute_us={} status={}",
      Quoted(id), peer, Quoted(shapes), backend, kernel,
      Microseconds(queue_time), Microseconds(compute_time),
      CodeName(status.code()));
}

}  // namespace attention::server
