#ifndef ATTENTION_SERVER_SERVICES_MODEL_DESCRIPTIONS_H_
#define ATTENTION_SERVER_SERVICES_MODEL_DESCRIPTIONS_H_

#include "inference/grpc_service.pb.h"
#include "server/models/model.h"

namespace attention::server {

/// What tools that know nothing else of a model need: the inputs that it must
/// be given, any extent allowed, and its main output. Masks, weights and the
/// log-sum-exp are not listed: tools fill every input with bytes and ask for
/// every output.
void FillModelMetadata(const Model& model,
                       inference::ModelMetadataResponse& metadata);

/// The same as a Triton model configuration. Batches are not put together by
/// the server: max_batch_size is 0 and the first extent belongs to the shape.
void FillModelConfig(const Model& model, inference::ModelConfig& config);

void FillModelStatistics(const Model& model,
                         inference::ModelStatistics& statistics);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SERVICES_MODEL_DESCRIPTIONS_H_
