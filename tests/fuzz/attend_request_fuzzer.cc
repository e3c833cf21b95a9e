// Decoding of AttendRequest against protobuf's own parser: what we accept it
// accepts with the same content, and what it accepts without unknown fields we
// accept, however the bytes are cut into slices. Then every step of serving it.
#include <google/protobuf/message.h>
#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attention/v1/attention.pb.h"
#include "core/batch.h"
#include "server/models/model_repository.h"
#include "server/request/results.h"
#include "server/wire/attend_fields.h"
#include "server/wire/attend_wire.h"
#include "tests/fuzz/compute_results.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/fuzz/slice_cuts.h"
#include "tests/support/restore_elements.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;

bool HasUnknownFields(const pb::Message& message) {
  const pb::Reflection& reflection = *message.GetReflection();
  if (!reflection.GetUnknownFields(message).empty()) return true;
  std::vector<const pb::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  return std::any_of(fields.begin(), fields.end(), [&](const auto* field) {
    if (field->message_type() == nullptr) return false;
    if (!field->is_repeated()) {
      return HasUnknownFields(reflection.GetMessage(message, field));
    }
    for (int n = 0; n < reflection.FieldSize(message, field); ++n) {
      if (HasUnknownFields(reflection.GetRepeatedMessage(message, field, n))) {
        return true;
      }
    }
    return false;
  });
}

bool Has(const pb::UnknownFieldSet& fields, int number) {
  for (int n = 0; n < fields.field_count(); ++n) {
    if (fields.field(n).number() == number) return true;
  }
  return false;
}

struct Split {
  absl::Status status;
  v1::AttendRequest message;
  MessageElements elements;
};

Split SplitOf(std::vector<grpc::Slice> slices) {
  Split split;
  auto elements = SplitMessage(std::move(slices), AttendRules(), split.message);
  split.status = elements.status();
  if (elements.ok()) split.elements = *std::move(elements);
  return split;
}

// Every step, as a server takes them.
void Serve(const uint8_t* data, size_t size) {
  static const auto* const models = new ModelRepository;
  AttendWire wire(/*on_stream=*/true, *models);
  const auto request =
      wire.Decode(test::CutIntoSlices(data, size), HoldUncounted);
  if (!request.ok()) return;
  const auto valid = ValidateBatch(request->problem);
  if (!valid.ok()) return;
  Results results(request->results, *valid);
  constexpr int64_t kLimit = 1 << 20;
  if (!results.CheckFit(wire.OtherBytes(), kLimit).ok() ||
      !results.Allocate().ok()) {
    return;
  }
  wire.Gather(nullptr);
  ComputeResults(*request, *valid, results);
  Expect(static_cast<int64_t>(
             wire.Encode(results.sent(), {}).bytes().Length()) <= kLimit,
         "a reply that fits is not longer than its bound");
}

void Compare(const uint8_t* data, size_t size) {
  v1::AttendRequest expected;
  const bool parses = expected.ParseFromArray(data, static_cast<int>(size));
  Split whole = SplitOf({grpc::Slice(data, size)});
  Split cut = SplitOf(test::CutIntoSlices(data, size));
  Expect(whole.status == cut.status, "cuts do not change the outcome");
  if (!whole.status.ok()) {
    // protobuf forgets the unknown fields of a scoring that another replaced,
    // and of keys and values that sequences did, or the reverse.
    pb::UnknownFieldSet fields;
    fields.ParseFromArray(data, static_cast<int>(size));
    const bool replaced =
        expected.scoring_case() != v1::AttendRequest::SCORING_NOT_SET ||
        (Has(fields, v1::AttendRequest::kKeyValueFieldNumber) &&
         Has(fields, v1::AttendRequest::kSequencesFieldNumber));
    const bool too_long = size > 64 << 10;
    const bool too_many = size > 64 * 5;  // tensors of one byte
    Expect(!parses || HasUnknownFields(expected) || replaced || too_long ||
               too_many,
           "what protobuf accepts is accepted");
    return;
  }
  Expect(parses, "what is accepted is a message to protobuf");
  for (Split* split : {&whole, &cut}) {
    v1::AttendRequest message = split->message;
    RestoreElements(split->elements, message);
    Expect(message.SerializeAsString() == expected.SerializeAsString(),
           "every field and every element is the same");
  }
  Serve(data, size);
}

}  // namespace
}  // namespace attention::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attention::QuietenProtobuf();
  attention::server::Compare(data, size);
  return 0;
}
