// Decoding of ModelInferRequest against protobuf's own parser: what we accept
// it accepts with the same content, and what it accepts we accept unless it is
// too much, however the bytes are cut into slices. Then every step up to
// computing.
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/stubs/logging.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/validate.h"
#include "inference/grpc_service.pb.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/wire/infer_decoder.h"
#include "server/wire/infer_wire.h"
#include "tests/fuzz/expect.h"
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

// Puts the elements back to where they were taken from.
ModelInferRequest Restored(DecodedInferRequest& decoded) {
  ModelInferRequest message = decoded.message;
  for (TensorBytes& raw : decoded.raw) {
    raw.Gather();
    message.add_raw_input_contents(raw.bytes().data(), raw.bytes().size());
  }
  Expect(static_cast<int>(decoded.contents.size()) == message.inputs_size(),
         "every input has its contents, if only none");
  for (int n = 0; n < message.inputs_size(); ++n) {
    for (const TensorBytes& piece : decoded.contents[static_cast<size_t>(n)]) {
      inference::InferTensorContents contents;
      if (!contents.ParseFromArray(piece.bytes().data(),
                                   static_cast<int>(piece.bytes().size()))) {
        continue;  // refused when it is read
      }
      message.mutable_inputs(n)->mutable_contents()->MergeFrom(contents);
    }
  }
  return message;
}

// As a server takes them. What is accepted has a reply within its bound.
void Serve(const uint8_t* data, size_t size, bool on_stream) {
  static const auto* const repository = new ModelRepository;
  static const auto* const models = new ModelTable(*repository);
  constexpr int64_t kLimit = 1 << 20;
  InferWire wire(*models, /*regions=*/nullptr, on_stream);
  const auto problem = wire.Decode(test::CutIntoSlices(data, size));
  if (!problem.ok()) return;
  const auto valid = Validate(*problem);
  if (!valid.ok()) return;
  if (!wire.PlanReply(*valid, kLimit).ok() || !wire.AllocateReply().ok()) {
    return;
  }
  static_cast<void>(wire.Outputs());
  const int64_t bound = wire.ReplyBytes();
  const auto reply = wire.Encode({});
  Expect(reply.ok(), "what was planned is encoded");
  Expect(static_cast<int64_t>(reply->Length()) <= bound && bound <= kLimit,
         "a reply that fits is not longer than its bound");
}

void Compare(const uint8_t* data, size_t size) {
  ModelInferRequest expected;
  const bool parses = expected.ParseFromArray(data, static_cast<int>(size));
  auto whole = DecodeInferRequest({grpc::Slice(data, size)});
  auto cut = DecodeInferRequest(test::CutIntoSlices(data, size));
  Expect(whole.status() == cut.status(), "cuts do not change the outcome");
  if (!whole.ok()) {
    const bool too_much = size > 64 << 10 ||
                          expected.raw_input_contents_size() > 64 ||
                          expected.inputs_size() > 0;
    Expect(!parses || too_much, "what protobuf accepts is accepted");
    return;
  }
  if (parses) {
    Expect(Canonical(Restored(*whole)) == Canonical(expected) &&
               Canonical(Restored(*cut)) == Canonical(expected),
           "every field and every element is the same");
  }
  Serve(data, size, /*on_stream=*/(size & 1) != 0);
}

}  // namespace
}  // namespace attention::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // It reports strings that are not UTF-8 on stderr.
  static const auto previous_handler = google::protobuf::SetLogHandler(nullptr);
  static_cast<void>(previous_handler);
  attention::server::Compare(data, size);
  return 0;
}
