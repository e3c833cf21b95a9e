#ifndef ATTENTION_SERVER_REQUEST_RESIDENT_ACCESS_H_
#define ATTENTION_SERVER_REQUEST_RESIDENT_ACCESS_H_

#include <optional>
#include <string>

#include "core/store/store.h"

namespace attention::server {

/// Whose sequences a request may use.
struct ResidentAccess {
  store::Store* store = nullptr;  // outlives the request
  std::string owner = {};         // as the store knows it
  /// Of sequences that the request makes; absent: they never expire.
  std::optional<store::Duration> idle_limit = {};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_REQUEST_RESIDENT_ACCESS_H_
