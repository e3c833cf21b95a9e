// Decoding of ModelInferRequest against protobuf's own parser: what we accept
// it accepts with the same content, and what it accepts we accept unless it is
// too much or has unknown fields, however the bytes are cut into slices. Then
// every step of serving it.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "core/batch.h"
#include "inference/grpc_service.pb.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/request/results.h"
#include "server/wire/infer_inputs.h"
#include "server/wire/infer_wire.h"
#include "tests/fuzz/compute_results.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/fuzz/slice_cuts.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;
using inference::ModelInferRequest;

// Maps have no order of their own.
std::string Canonical(ModelInferRequest message) {
  message.DiscardUnknownFields();
  std::string bytes;
  {
    pb::io::StringOutputStream stream(&bytes);
    pb::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&out);
  }
  return bytes;
}

struct Split {
  absl::Status status;
  ModelInferRequest message;
  MessageElements elements;
};

Split SplitOf(std::vector<grpc::Slice> slices) {
  Split split;
  auto elements = SplitMessage(std::move(slices), InferRules(), split.message);
  split.status = elements.status();
  if (elements.ok()) split.elements = *std::move(elements);
  return split;
}

std::string TextOf(MessageElements& elements, const std::string& mark) {
  TensorBytes* const bytes = elements.Find(mark);
  if (bytes == nullptr) return {};
  bytes->Gather();
  return {reinterpret_cast<const char*>(bytes->bytes().data()),
          bytes->bytes().size()};
}

// Puts the elements back to where they were taken from.
ModelInferRequest Restored(Split& split) {
  ModelInferRequest message = split.message;
  for (std::string& raw : *message.mutable_raw_input_contents()) {
    raw = TextOf(split.elements, raw);
  }
  for (auto& input : *message.mutable_inputs()) {
    if (!input.has_contents()) continue;
    inference::InferTensorContents contents;
    for (const std::string& mark : input.contents().bytes_contents()) {
      inference::InferTensorContents piece;
      // What does not parse is refused when it is read.
      if (piece.ParseFromString(TextOf(split.elements, mark))) {
        contents.MergeFrom(piece);
      }
    }
    *input.mutable_contents() = contents;
  }
  return message;
}

// As a server takes them. What is accepted has a reply within its bound.
void Serve(const uint8_t* data, size_t size, bool on_stream) {
  static const auto* const repository = new ModelRepository;
  static const auto* const models = new ModelTable(*repository);
  constexpr int64_t kLimit = 1 << 20;
  InferWire wire(*models, /*regions=*/{}, on_stream);
  const auto request =
      wire.Decode(test::CutIntoSlices(data, size), HoldUncounted);
  if (!request.ok()) return;
  const auto valid = ValidateBatch(request->problem);
  if (!valid.ok()) return;
  Results results(request->results, *valid);
  if (!results.CheckFit(wire.OtherBytes(), kLimit).ok() ||
      !results.Allocate().ok()) {
    return;
  }
  wire.Gather(nullptr);
  ComputeResults(*request, *valid, results);
  const int64_t bound = results.Bytes() + wire.OtherBytes();
  const auto reply = wire.Encode(results.sent(), {});
  Expect(
      static_cast<int64_t>(reply.bytes().Length()) <= bound && bound <= kLimit,
      "a reply that fits is not longer than its bound");
}

void Compare(const uint8_t* data, size_t size) {
  ModelInferRequest expected;
  const bool parses = expected.ParseFromArray(data, static_cast<int>(size));
  Split whole = SplitOf({grpc::Slice(data, size)});
  Split cut = SplitOf(test::CutIntoSlices(data, size));
  Expect(whole.status == cut.status, "cuts do not change the outcome");
  if (!whole.status.ok()) {
    const bool too_much = size > 64 << 10 ||
                          expected.raw_input_contents_size() > 64 ||
                          expected.inputs_size() > 0;
    // Of another wire type, or of another number.
    const bool unknown =
        absl::StrContains(whole.status.message(), "is not its own") ||
        absl::StrContains(whole.status.message(), "is unknown to this server");
    Expect(!parses || too_much || unknown, "what protobuf accepts is accepted");
    return;
  }
  if (parses) {
    Expect(Canonical(Restored(whole)) == Canonical(expected) &&
               Canonical(Restored(cut)) == Canonical(expected),
           "every field and every element is the same");
  }
  Serve(data, size, /*on_stream=*/(size & 1) != 0);
}

}  // namespace
}  // namespace attention::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attention::QuietenProtobuf();
  attention::server::Compare(data, size);
  return 0;
}
