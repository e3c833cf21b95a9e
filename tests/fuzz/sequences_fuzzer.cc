// Messages about sequences, over a store that has some: what is appended, what
// is attended to over both APIs, and the order that is read off requests of a
// stream.
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/batch.h"
#include "core/tensor.h"
#include "server/models/model_repository.h"
#include "server/models/model_table.h"
#include "server/options/options.h"
#include "server/request/results.h"
#include "server/request/sequence_keys.h"
#include "server/resident/resident_store.h"
#include "server/wire/append_operation.h"
#include "server/wire/attend_wire.h"
#include "server/wire/infer_values.h"
#include "server/wire/infer_wire.h"
#include "server/wire/sequence_steps.h"
#include "tests/fuzz/compute_results.h"
#include "tests/fuzz/expect.h"
#include "tests/fuzz/quiet_protobuf.h"
#include "tests/fuzz/slice_cuts.h"

namespace attention::server {
namespace {

constexpr int64_t kMostResultBytes = 1 << 20;

ResidentStore& Resident() {
  static auto* const resident = [] {
    ServerOptions options;
    options.resident_memory_limit = 1 << 20;
    return ResidentStore::Open(options).value().release();
  }();
  return *resident;
}

// Where the Open Inference Protocol keeps its sequence 7.
std::string NameOfSequence7() {
  inference::ModelInferRequest message;
  (*message.mutable_parameters())["sequence_id"].set_int64_param(7);
  const auto sequence = ReadSequence(message.parameters());
  return NamesOf(**sequence, "scaled_dot_product_attention") + "0";
}

// Sequences as if they had just been made: "a" of FP32 with 70 keys of layer 1,
// the others without keys: "b" of BF16, "c" of INT8, "d" of FP8, and the
// protocol's own of FP32.
void MakeSequences() {
  static const auto* const wanted = new std::vector<store::NewSequence>{
      {.form = {.key_width = 2, .type = DataType::kFloat32, .layers = 2},
       .name = "a"},
      {.form = {.heads = 2,
                .key_width = 2,
                .value_width = 2,
                .type = DataType::kBFloat16},
       .name = "b"},
      {.form = {.key_width = 2, .type = DataType::kInt8}, .name = "c"},
      {.form = {.key_width = 2, .type = DataType::kFloat8}, .name = "d"},
      {.form = {.key_width = 2, .type = DataType::kFloat32},
       .name = NameOfSequence7()}};
  store::Store& store = Resident().store();
  const store::Time now = store::Clock::now();
  for (const store::NewSequence& one : *wanted) {
    store.Delete("", one.name).IgnoreError();
  }
  Expect(store.Create("", *wanted, now).ok(), "there is room for some");
  static const auto* const numbers = new std::vector<float>(140, 0.5F);
  const KeyValueBlock rows = {
      ContiguousView(DataType::kFloat32, {1, 70, 2}, numbers->data()),
      ContiguousView(DataType::kFloat32, {1, 70, 1}, numbers->data())};
  Expect(store.Append("", "a", 1, 0, rows, now).ok(), "and for keys");
}

void Append(const uint8_t* data, size_t size) {
  AppendOperation operation(Resident().AccessOf(nullptr),
                            ServerOptions().max_dimension);
  RequestFacts facts;
  absl::Status status =
      operation.Decode(test::CutIntoSlices(data, size), HoldUncounted, facts);
  if (status.ok()) status = operation.Plan(facts).status();
  if (!status.ok()) return;
  operation.Gather(nullptr);
  if (!operation.Run({}, {}, facts).ok()) return;
  Expect(operation.Encode(facts)->bytes().Length() <= 64, "the reply is short");
}

// That the order knows every sequence that the request uses.
void ExpectKnown(const SequenceStep& step, const AttentionRequest& request) {
  for (const SequenceLayer& entry : request.sequences) {
    Expect(absl::c_linear_search(step.layers,
                                 absl::StrCat(entry.layer, " ", entry.name)),
           "the order of a stream knows every sequence");
  }
  Expect(request.sequences.empty() || step.appends ||
             request.problem.key_value.empty(),
         "and who appends");
}

void ReadAsPlanned(SequenceKeys& keys, AttentionRequest& request) {
  const auto planned = ValidateBatch(request.problem);
  if (!planned.ok()) return;
  const int64_t bytes = planned->ResultBytes();
  if (bytes > kMostResultBytes) return;
  if (!keys.Read(request).ok()) return;
  const auto valid = ValidateBatch(request.problem);
  Expect(valid.ok(), "what was planned can be computed");
  // Nobody else appends; an entry may name what the one before has made longer.
  Expect(request.sequences.size() > 1 || valid->ResultBytes() == bytes,
         "and is as large as was planned");
  Results results(request.results, *valid);
  if (valid->ResultBytes() > kMostResultBytes || !results.Allocate().ok()) {
    return;
  }
  ComputeResults(request, *valid, results);
}

// As the server does.
void Serve(AttentionWire& wire, AttentionRequest& request) {
  if (request.sequences.empty()) return;
  wire.Gather(nullptr);
  SequenceKeys keys(Resident().AccessOf(nullptr));
  if (!keys.Plan(request).ok()) return;
  ReadAsPlanned(keys, request);
  // What it has made must not fill the store.
  if (request.sequence_life.start) keys.End(request, absl::CancelledError());
}

const ModelRepository& Models() {
  static const auto* const models = new ModelRepository;
  return *models;
}

void Attend(const uint8_t* data, size_t size) {
  const grpc::Slice slice(data, size);
  const SequenceStep step = StepOfAttend(grpc::ByteBuffer(&slice, 1));
  AttendWire wire(/*on_stream=*/false, Models());
  auto request = wire.Decode(test::CutIntoSlices(data, size), HoldUncounted);
  if (!request.ok()) return;
  ExpectKnown(step, *request);
  Serve(wire, *request);
}

void Infer(const uint8_t* data, size_t size) {
  static const auto* const models = new ModelTable(Models());
  const grpc::Slice slice(data, size);
  const SequenceStep step = StepOfInfer(grpc::ByteBuffer(&slice, 1));
  InferWire wire(*models, /*regions=*/{}, /*on_stream=*/true);
  auto request = wire.Decode(test::CutIntoSlices(data, size), HoldUncounted);
  if (!request.ok()) return;
  const auto is_known = [&step](const SequenceLayer& entry) {
    return absl::c_any_of(step.layers, [&entry](const std::string& id) {
      return entry.label == absl::StrCat("sequence_id ", id);
    });
  };
  Expect(request->sequences.empty() || step.appends, "it says that it appends");
  Expect(absl::c_all_of(request->sequences, is_known), "and to what");
  Serve(wire, *request);
}

}  // namespace
}  // namespace attention::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  attention::QuietenProtobuf();
  using namespace attention::server;  // NOLINT(google-build-using-namespace)
  MakeSequences();
  Append(data, size);
  Attend(data, size);
  Infer(data, size);
  return 0;
}
