#include "core/cuda/upload.h"

#include <variant>
#include <vector>

#include "core/cuda/transfer.h"
#include "core/element.h"

namespace attention::cuda {
namespace {

// One head and batch entry of a view of four extents, (length, width).
TensorView HeadOf(const TensorView& view, int64_t batch, int64_t head) {
  TensorView rows;
  rows.type = view.type;
  rows.shape = {view.shape[2], view.shape[3]};
  rows.strides = {view.strides[2], view.strides[3]};
  rows.data = view.data + batch * view.strides[0] + head * view.strides[1];
  return rows;
}

// Keys or values: for each head, those of all blocks.
void AppendBlocks(const ValidatedProblem& problem,
                  TensorView ValidatedProblem::Block::*part,
                  Uploader& uploader) {
  for (int64_t b = 0; b < problem.batch; ++b) {
    for (int64_t head = 0; head < problem.kv_heads; ++head) {
      for (const ValidatedProblem::Block& block : problem.key_value) {
        uploader.AppendView(HeadOf(block.*part, b, head));
      }
    }
  }
}

// A parameter (Hq, ...), once where its heads share it.
void AppendParameter(TensorView parameter, int64_t head_stride,
                     Uploader& uploader) {
  if (head_stride == 0) parameter.shape[0] = 1;
  uploader.AppendView(parameter);
}

// w_v, (Hq, h), which kernels read in FP32.
void AppendTanhWeights(TensorView w_v, int64_t head_stride,
                       Uploader& uploader) {
  if (head_stride == 0) w_v.shape[0] = 1;
  std::vector<float> row(static_cast<size_t>(w_v.shape[1]));
  for (int64_t head = 0; head < w_v.shape[0]; ++head) {
    for (int64_t n = 0; n < w_v.shape[1]; ++n) {
      row[static_cast<size_t>(n)] = static_cast<float>(LoadElement(
          w_v.type, w_v.data + head * w_v.strides[0] + n * w_v.strides[1]));
    }
    uploader.Append(row.data(),
                    static_cast<int64_t>(row.size() * sizeof(float)));
  }
}

void AppendCompact(TensorView view, Uploader& uploader) {
  const Compact compact = CompactOf(view);
  for (size_t n = 0; n < view.shape.size(); ++n) {
    view.shape[n] = compact.extents[n];
  }
  uploader.AppendView(view);
}

void AppendKeyRanges(const ValidatedProblem& problem, Uploader& uploader) {
  std::vector<KeySpan> spans(static_cast<size_t>(problem.query_length));
  for (int64_t b = 0; b < problem.batch; ++b) {
    for (int64_t i = 0; i < problem.query_length; ++i) {
      const KeyRange range = KeysInRange(problem, b, i);
      spans[static_cast<size_t>(i)] = {range.begin, range.end};
    }
    uploader.Append(spans.data(),
                    static_cast<int64_t>(spans.size() * sizeof(KeySpan)));
  }
}

}  // namespace

absl::Status UploadInputs(const ValidatedProblem& problem, const Plan& plan,
                          Stream& stream, std::byte* memory) {
  Uploader uploader(stream);
  const auto begin = [&](const Buffer& buffer) {
    if (buffer.bytes == 0) return false;
    uploader.Begin(memory + buffer.offset);
    return true;
  };
  if (begin(plan.query)) uploader.AppendView(problem.query);
  if (begin(plan.key)) {
    AppendBlocks(problem, &ValidatedProblem::Block::key, uploader);
  }
  if (begin(plan.value)) {
    AppendBlocks(problem, &ValidatedProblem::Block::value, uploader);
  }
  const auto* additive = std::get_if<Additive>(&problem.scoring);
  if (begin(plan.query_matrix)) {
    AppendParameter(additive != nullptr ? additive->w_q
                                        : std::get<Bilinear>(problem.scoring).m,
                    plan.project_query->matrix_stride, uploader);
  }
  if (additive != nullptr && begin(plan.key_matrix)) {
    AppendParameter(additive->w_k, plan.project_key->matrix_stride, uploader);
  }
  if (additive != nullptr && begin(plan.tanh_weights)) {
    AppendTanhWeights(additive->w_v, plan.args.tanh_weight_stride, uploader);
  }
  if (begin(plan.key_ranges)) AppendKeyRanges(problem, uploader);
  if (begin(plan.attend_mask)) AppendCompact(*problem.attend_mask, uploader);
  if (begin(plan.bias)) AppendCompact(*problem.bias, uploader);
  return uploader.Finish();
}

}  // namespace attention::cuda
