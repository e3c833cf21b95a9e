#ifndef ATTENTION_SERVER_WIRE_ATTEND_FIELDS_H_
#define ATTENTION_SERVER_WIRE_ATTEND_FIELDS_H_

#include "absl/status/status.h"
#include "attention/v1/attention.pb.h"
#include "server/request/request_builder.h"
#include "server/wire/message_splitter.h"

/// The fields of an AttendRequest by the names that the tables of tensors and
/// options have: protobuf's reflection finds them, so that a new field needs
/// nothing here.
namespace attention::server {

/// How its tensors' data is split off.
const SplitRules& AttendRules();

/// The tensors of `message`, whose elements are marks of `elements`, and its
/// options, those of its scoring function too.
absl::Status ReadFields(const v1::AttendRequest& message,
                        MessageElements& elements, RequestBuilder& builder);

/// What is asked of a scoring function that the message chooses itself; false
/// where it chooses none or a parameter set.
bool ChosenScoring(const v1::AttendRequest& message, Scoring& scoring);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_ATTEND_FIELDS_H_
