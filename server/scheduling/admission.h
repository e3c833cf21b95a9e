#ifndef ATTENTION_SERVER_SCHEDULING_ADMISSION_H_
#define ATTENTION_SERVER_SCHEDULING_ADMISSION_H_

#include <cstdint>
#include <mutex>

#include "absl/status/statusor.h"

namespace attention::server {

/// Bounds what the server holds: requests queued or running, and the bytes of
/// those and of their replies. May be used from several threads at once and
/// must outlive its tickets.
class Admission {
 public:
  /// A request's place, given back when it is destroyed.
  class Ticket {
   public:
    Ticket() = default;
    Ticket(Ticket&& other) noexcept;
    Ticket& operator=(Ticket&& other) noexcept;
    ~Ticket() { Return(); }

   private:
    friend class Admission;
    Ticket(Admission* admission, int64_t bytes)
        : admission_(admission), bytes_(bytes) {}
    void Return();

    Admission* admission_ = nullptr;
    int64_t bytes_ = 0;
  };

  /// Both at least 1.
  Admission(int64_t max_requests, int64_t max_bytes)
      : max_requests_(max_requests), max_bytes_(max_bytes) {}

  /// A place for a request that, with its reply, holds `bytes` >= 0.
  /// RESOURCE_EXHAUSTED names the limit that is reached; UNAVAILABLE once
  /// draining.
  absl::StatusOr<Ticket> Admit(int64_t bytes);

  /// From now on nothing is admitted.
  void StartDraining();

  bool draining() const;
  int64_t requests() const;
  int64_t bytes() const;

 private:
  const int64_t max_requests_;
  const int64_t max_bytes_;
  mutable std::mutex mutex_;
  bool draining_ = false;
  int64_t requests_ = 0;
  int64_t bytes_ = 0;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_ADMISSION_H_
