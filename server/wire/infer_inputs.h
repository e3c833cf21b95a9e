#ifndef ATTENTION_SERVER_WIRE_INFER_INPUTS_H_
#define ATTENTION_SERVER_WIRE_INFER_INPUTS_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/problem.h"
#include "server/memory/shared_memory_registry.h"
#include "server/models/model.h"
#include "server/wire/infer_decoder.h"

namespace attention::server {

/// What a request's tensors lie in, beside the decoded request itself.
struct InferMemory {
  std::vector<AlignedBuffer> buffers;
  std::vector<std::shared_ptr<SharedMemoryRegion>> regions;
};

/// Makes the inputs of `request` the tensors of `problem`, whose scoring
/// function is chosen already. Elements in raw_input_contents and in regions
/// are used where they are; typed contents, and those inputs in regions whose
/// values decide what is read (valid_lens, attend_mask), are copied to
/// `memory`: their owner could change them once they were checked. So are
/// parameters in regions of a device. Large raw
/// elements that are not gathered yet stay so, but for those two. `regions` is
/// null where shared memory is switched off.
///
/// INVALID_ARGUMENT, beginning with the input's name, for what only the wire
/// can get wrong: unknown, repeated and missing inputs, unknown datatypes, no
/// elements or elements in two places, byte counts that are not what the shape
/// needs. NOT_FOUND for an unknown region, UNAVAILABLE where they are switched
/// off.
absl::Status ReadInferInputs(DecodedInferRequest& request, const Model& model,
                             const SharedMemoryRegistry* regions,
                             AttentionProblem& problem, InferMemory& memory);

/// The region that a reference names. UNAVAILABLE where shared memory is
/// switched off; otherwise as SharedMemoryRegistry::Find.
absl::StatusOr<std::shared_ptr<SharedMemoryRegion>> FindRegion(
    const SharedMemoryRegistry* regions, const std::string& name);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_INFER_INPUTS_H_
