#ifndef ATTENTION_SERVER_TELEMETRY_REQUEST_SERIES_H_
#define ATTENTION_SERVER_TELEMETRY_REQUEST_SERIES_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "server/telemetry/histogram.h"
#include "server/telemetry/request_facts.h"

namespace attention::server {

inline constexpr size_t kStatusCodes = 17;  // of gRPC: 0 to 16

/// From arrival to the encoded reply.
std::chrono::nanoseconds WholeTime(const RequestFacts& facts);

/// The metrics of one model's requests over one API. Its user keeps threads
/// apart.
struct RequestSeries {
  std::array<uint64_t, kStatusCodes> by_code{};
  // Of requests that reached the end of the queue:
  TimeHistogram queue;     // waiting for a worker
  TimeHistogram compute;   // computing
  TimeHistogram transfer;  // decoding, gathering, encoding
  CountHistogram batch;    // entries of a request
  uint64_t request_bytes = 0;
  uint64_t reply_bytes = 0;

  void Count(const RequestFacts& facts);
  uint64_t requests() const;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_REQUEST_SERIES_H_
