#ifndef ATTENTION_SERVER_CALLERS_CALLER_H_
#define ATTENTION_SERVER_CALLERS_CALLER_H_

#include <chrono>
#include <cstdint>
#include <set>
#include <string>
#include <utility>

namespace attention::server {

/// What one caller may take; 0 where the server's own limits alone hold.
struct CallerLimits {
  int64_t max_requests_in_flight = 0;
  int64_t max_bytes_in_flight = 0;
  std::chrono::milliseconds max_compute_time{0};  // of one request
  int64_t max_dimension = 0;                      // likewise
  int64_t max_weights_bytes = 0;                  // likewise
  int64_t max_requests_per_second = 0;
  int64_t max_bytes_per_second = 0;
};

/// What is for the callers that the callers file grants it.
enum class Right : uint8_t { kSharedMemory, kModelControl, kSequenceFiles };

/// All of them, with their names in the callers file.
inline constexpr std::pair<Right, const char*> kRights[] = {
    {Right::kSharedMemory, "shared_memory"},
    {Right::kModelControl, "model_control"},
    {Right::kSequenceFiles, "sequence_files"}};

/// Somebody whom the callers file knows.
struct Caller {
  std::string name;
  std::set<Right> may;
  CallerLimits limits;

  bool Has(Right right) const { return may.count(right) > 0; }
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_CALLERS_CALLER_H_
