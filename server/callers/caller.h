#ifndef ATTENTION_SERVER_CALLERS_CALLER_H_
#define ATTENTION_SERVER_CALLERS_CALLER_H_

#include <chrono>
#include <cstdint>
#include <string>

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

/// What may be limited to named callers.
enum class Right : uint8_t { kSharedMemory, kModelControl };

/// Somebody whom the callers file knows.
struct Caller {
  std::string name;
  bool shared_memory = false;
  bool model_control = false;
  CallerLimits limits;

  bool Has(Right right) const {
    return right == Right::kSharedMemory ? shared_memory : model_control;
  }
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_CALLERS_CALLER_H_
