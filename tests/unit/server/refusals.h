#ifndef ATTENTION_TESTS_UNIT_SERVER_REFUSALS_H_
#define ATTENTION_TESTS_UNIT_SERVER_REFUSALS_H_

#include <string>

#include "absl/status/status.h"
#include "core/validate.h"
#include "server/models/model_repository.h"
#include "server/wire/attend_wire.h"
#include "tests/service/wrong_input.h"
#include "tests/unit/server/attend_requests.h"

namespace attention::server {

/// What these bytes are told as an AttendRequest, before anything is computed:
/// they are decoded and validated.
inline absl::Status StatusOf(const std::string& bytes) {
  const ModelRepository models;
  AttendWire wire(/*on_stream=*/false, models);
  const auto request = wire.Decode(OneSlice(bytes), server::HoldUncounted);
  if (!request.ok()) return request.status();
  return Validate(request->problem).status();
}

/// Expects INVALID_ARGUMENT for what `row` describes, with its message.
inline void ExpectRefused(const test::WrongInput& row) {
  v1::AttendRequest request = test::GoodRequest();
  ASSERT_TRUE(StatusOf(request.SerializeAsString()).ok());
  row.spoil(request);
  test::ExpectRefusal(StatusOf(request.SerializeAsString()),
                      absl::StatusCode::kInvalidArgument, row.message);
}

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_REFUSALS_H_
