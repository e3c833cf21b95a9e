#include "server/scheduling/admission.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {

Admission::Ticket::Ticket(Ticket&& other) noexcept
    : admission_(std::exchange(other.admission_, nullptr)),
      bytes_(other.bytes_) {}

Admission::Ticket& Admission::Ticket::operator=(Ticket&& other) noexcept {
  if (this != &other) {
    Return();
    admission_ = std::exchange(other.admission_, nullptr);
    bytes_ = other.bytes_;
  }
  return *this;
}

void Admission::Ticket::Return() {
  if (admission_ == nullptr) return;
  const std::lock_guard lock(admission_->mutex_);
  --admission_->requests_;
  admission_->bytes_ -= bytes_;
}

absl::StatusOr<Admission::Ticket> Admission::Admit(int64_t bytes) {
  const std::lock_guard lock(mutex_);
  if (draining_) return absl::UnavailableError("the server is draining");
  if (requests_ >= max_requests_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the server is full: ", requests_, " requests in flight (at most ",
        max_requests_, ", max_requests_in_flight)"));
  }
  if (bytes > max_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the request needs ", bytes,
        " bytes with its working memory and reply, and never fits (at most ",
        max_bytes_, ", half of memory_limit)"));
  }
  if (bytes > max_bytes_ - bytes_) {
    return absl::ResourceExhaustedError(
        absl::StrCat("the server is full: the request needs ", bytes,
                     " bytes, those in flight hold ", bytes_, " (at most ",
                     max_bytes_, ", half of memory_limit)"));
  }
  ++requests_;
  bytes_ += bytes;
  return Ticket(this, bytes);
}

void Admission::StartDraining() {
  const std::lock_guard lock(mutex_);
  draining_ = true;
}

bool Admission::draining() const {
  const std::lock_guard lock(mutex_);
  return draining_;
}

int64_t Admission::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

int64_t Admission::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace attention::server
