#include "core/cuda/job_transfer.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <optional>
#include <vector>

#include "core/cuda/plan_memory.h"
#include "core/cuda/rearrange.h"
#include "core/cuda/scoring.h"
#include "core/element.h"
#include "core/validate_parts.h"

namespace attention::cuda {
namespace {

// One row of a view of four extents.
TensorView RowOf(const TensorView& view, int64_t batch, int64_t head,
                 int64_t query) {
  TensorView row;
  row.type = view.type;
  row.shape = {view.shape[3]};
  row.strides = {view.strides[3]};
  row.data = view.At(batch, head, query, 0);
  return row;
}

// A parameter (Hq, ...), once where its heads share it.
void AppendParameter(TensorView parameter, int64_t head_stride,
                     Uploader& uploader) {
  if (head_stride == 0) parameter.shape[0] = 1;
  uploader.AppendView(parameter);
}

// Weights of terms, (Hq, width), which kernels read in FP32.
void AppendTermWeights(TensorView weights, int64_t head_stride,
                       Uploader& uploader) {
  if (head_stride == 0) weights.shape[0] = 1;
  std::vector<float> row(static_cast<size_t>(weights.shape[1]));
  for (int64_t head = 0; head < weights.shape[0]; ++head) {
    for (int64_t n = 0; n < weights.shape[1]; ++n) {
      row[static_cast<size_t>(n)] = static_cast<float>(LoadElement(
          weights.type,
          weights.data + head * weights.strides[0] + n * weights.strides[1]));
    }
    uploader.Append(row.data(),
                    static_cast<int64_t>(row.size() * sizeof(float)));
  }
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

void AppendPositions(const ValidatedProblem& problem, Uploader& uploader) {
  for (int64_t b = 0; b < problem.batch; ++b) {
    const double position = RowPosition(problem, b, 0);
    uploader.Append(&position, sizeof(position));
  }
}

template <typename View>
bool OnDevice(const View& view) {
  return view.space == MemorySpace::kCudaDevice;
}

// Rows of a head of a result.
struct Piece {
  int64_t batch;
  int64_t head;
  std::byte* at;
  int64_t rows;
};

// Of a view (B, Hq, Lq, ...) with rows of so many bytes: a head is one piece
// where its rows lie one behind the other, else each row is.
template <typename Visit>
void ForEachPiece(const ValidatedProblem& problem,
                  const MutableTensorView& view, int64_t row_bytes,
                  const Visit& visit) {
  const auto& strides = view.strides;
  const int64_t rows =
      strides[2] == row_bytes ? problem.query_length : int64_t{1};
  for (int64_t b = 0; b < problem.batch; ++b) {
    for (int64_t h = 0; h < problem.query_heads; ++h) {
      for (int64_t q = 0; q < problem.query_length; q += rows) {
        visit(Piece{
            .batch = b,
            .head = h,
            .at = view.data + b * strides[0] + h * strides[1] + q * strides[2],
            .rows = rows});
      }
    }
  }
}

class InputBringer {
 public:
  InputBringer(const KernelTable& kernels, Stream& stream, std::byte* memory,
               Uploader& up)
      : kernels_(kernels), stream_(stream), memory_(memory), up_(up) {}

  // What is appended from here on goes to the buffer; false where there is
  // none.
  bool Begin(const Buffer& buffer) {
    if (buffer.bytes == 0) return false;
    up_.BeginNext(memory_ + buffer.offset);
    return true;
  }

  void Bring(const TensorView& view, const Buffer& buffer) {
    if (buffer.bytes == 0) return;
    if (!OnDevice(view)) {
      Begin(buffer);
      return up_.AppendView(view);
    }
    Move(view, memory_ + buffer.offset,
         ContiguousStrides(view.shape, ByteSize(view.type)));
  }

  // A mask or bias, with its rows where kernels read them.
  void BringMask(const TensorView& mask, const Buffer& buffer) {
    if (buffer.bytes == 0) return;
    const TensorView view = internal::WithoutRepeats(mask);
    const int64_t size = ByteSize(view.type);
    const Compact compact = CompactOf(mask);
    if (OnDevice(view)) {
      Shape strides(std::begin(compact.strides), std::end(compact.strides));
      for (int64_t& stride : strides) stride *= size;
      return Move(view, memory_ + buffer.offset, strides);
    }
    const int64_t rows = view.shape[0] * view.shape[1] * view.shape[2];
    const int64_t gap = (compact.elements / rows - view.shape[3]) * size;
    Begin(buffer);
    if (gap == 0) return up_.AppendView(view);
    static constexpr std::byte kGap[16] = {};
    for (int64_t b = 0; b < view.shape[0]; ++b) {
      for (int64_t h = 0; h < view.shape[1]; ++h) {
        for (int64_t i = 0; i < view.shape[2]; ++i) {
          up_.AppendView(RowOf(view, b, h, i));
          up_.Append(kGap, gap);
        }
      }
    }
  }

  // Keys or values, those of all blocks side by side in each head.
  void BringBlocks(const ValidatedProblem& problem,
                   TensorView ValidatedProblem::Block::*part,
                   const Buffer& buffer) {
    if (buffer.bytes == 0) return;
    const auto& blocks = problem.key_value;
    if (std::any_of(blocks.begin(), blocks.end(), [part](const auto& block) {
          return OnDevice(block.*part);
        })) {
      for (const auto& block : blocks) {
        BringBlock(problem, block.*part, block.first_key, buffer);
      }
      return;
    }
    // From the host in one go.
    Begin(buffer);
    if (blocks.size() == 1) return up_.AppendView(blocks.front().*part);
    for (int64_t b = 0; b < problem.batch; ++b) {
      for (int64_t head = 0; head < problem.kv_heads; ++head) {
        for (const auto& block : blocks) {
          up_.AppendView(HeadOf(block.*part, b, head));
        }
      }
    }
  }

  const absl::Status& status() const { return status_; }

 private:
  void BringBlock(const ValidatedProblem& problem, const TensorView& block,
                  int64_t first_key, const Buffer& buffer) {
    const Shape all = {problem.batch, problem.kv_heads, problem.key_length,
                       block.shape[3]};
    const Shape strides = ContiguousStrides(all, ByteSize(block.type));
    std::byte* const to = memory_ + buffer.offset + first_key * strides[2];
    if (OnDevice(block)) return Move(block, to, strides);
    for (int64_t b = 0; b < problem.batch; ++b) {
      for (int64_t head = 0; head < problem.kv_heads; ++head) {
        up_.Begin(to + b * strides[0] + head * strides[1]);
        up_.AppendView(HeadOf(block, b, head));
      }
    }
    // The bytes behind it are the next block's.
    up_.Finish().IgnoreError();
  }

  void Move(const TensorView& view, std::byte* to, const Shape& strides) {
    if (!status_.ok()) return;
    status_ = Rearrange(RearrangeArgsOf(view, to, strides), kernels_, stream_);
  }

  const KernelTable& kernels_;
  Stream& stream_;
  std::byte* const memory_;
  Uploader& up_;
  absl::Status status_;
};

// Row-major elements to where a view of results has them.
void CopyToHost(const TensorView& from, const MutableTensorView& to,
                Downloader& down) {
  if (IsRowMajor(ReadOnly(to))) {
    const int64_t bytes = from.shape[0] * from.strides[0];
    return down.Copy(from.data, to.data, bytes);
  }
  TensorView part = from;
  MutableTensorView place = to;
  for (Shape* shape :
       {&part.shape, &part.strides, &place.shape, &place.strides}) {
    shape->erase(shape->begin());
  }
  for (int64_t n = 0; n < to.shape[0]; ++n) {
    part.data = from.data + n * from.strides[0];
    place.data = to.data + n * to.strides[0];
    CopyToHost(part, place, down);
  }
}

}  // namespace

TensorView HeadOf(const TensorView& view, int64_t batch, int64_t head) {
  TensorView rows;
  rows.type = view.type;
  rows.shape = {view.shape[2], view.shape[3]};
  rows.strides = {view.strides[2], view.strides[3]};
  rows.data = view.data + batch * view.strides[0] + head * view.strides[1];
  return rows;
}

absl::Status UploadInputs(const ValidatedProblem& problem, const Plan& plan,
                          const KernelTable& kernels, Stream& stream,
                          std::byte* memory, WorkerPool& workers) {
  Uploader up(stream, &workers);
  absl::Status status =
      UploadInputs(problem, plan, kernels, stream, memory, up);
  status.Update(up.Finish());
  return status;
}

absl::Status UploadInputs(const ValidatedProblem& problem, const Plan& plan,
                          const KernelTable& kernels, Stream& stream,
                          std::byte* memory, Uploader& up) {
  InputBringer bringer(kernels, stream, memory, up);
  bringer.Bring(problem.query, plan.query);
  bringer.BringBlocks(problem, &ValidatedProblem::Block::key, plan.key);
  bringer.BringBlocks(problem, &ValidatedProblem::Block::value, plan.value);
  const ScoringParts scoring = PartsOf(problem);
  if (bringer.Begin(plan.query_matrix)) {
    AppendParameter(*scoring.query_matrix, plan.project_query->matrix_stride,
                    up);
  }
  if (bringer.Begin(plan.key_matrix)) {
    AppendParameter(*scoring.key_matrix, plan.project_key->matrix_stride, up);
  }
  if (bringer.Begin(plan.term_weights)) {
    AppendTermWeights(*scoring.term_weights, plan.args.term_weight_stride, up);
  }
  if (bringer.Begin(plan.key_ranges)) AppendKeyRanges(problem, up);
  if (problem.attend_mask) {
    bringer.BringMask(*problem.attend_mask, plan.attend_mask);
  }
  if (problem.bias) bringer.BringMask(*problem.bias, plan.bias);
  if (problem.alibi_slopes) {
    bringer.Bring(*problem.alibi_slopes, plan.alibi_slopes);
    if (bringer.Begin(plan.alibi_positions)) AppendPositions(problem, up);
  }
  if (problem.sinks) bringer.Bring(*problem.sinks, plan.sinks);
  return bringer.status();
}

absl::Status DownloadResults(const AttentionJob& job, const Plan& plan,
                             const KernelTable& kernels, Stream& stream,
                             const std::byte* memory) {
  Downloader down(stream);
  absl::Status status =
      DownloadResults(job, plan, kernels, stream, memory, down);
  status.Update(down.Finish());
  return status;
}

absl::Status DownloadResults(const AttentionJob& job, const Plan& plan,
                             const KernelTable& kernels, Stream& stream,
                             const std::byte* memory, Downloader& down) {
  absl::Status status;
  const auto copy = [&](const Buffer& buffer, const MutableTensorView& to) {
    if (buffer.bytes == 0 || !status.ok()) return;
    const TensorView from =
        ContiguousView(to.type, to.shape, memory + buffer.offset);
    if (to.space == MemorySpace::kCudaDevice) {
      status = Rearrange(RearrangeArgsOf(from, to.data, to.strides), kernels,
                         stream);
    } else {
      CopyToHost(from, to, down);
    }
  };
  copy(plan.output, job.outputs.output);
  copy(plan.weights, job.outputs.weights);
  copy(plan.lse, job.outputs.lse);
  return status;
}

absl::Status WriteEmptyResults(const AttentionJob& job, Stream* stream) {
  const ValidatedProblem& problem = *job.problem;
  absl::Status status;
  // No byte bounds the number of heads then.
  if (problem.query_length == 0) return status;
  const int64_t row_bytes = problem.value_width * ByteSize(problem.query.type);
  if (row_bytes > 0) {
    ForEachPiece(problem, internal::AddExtents(job.outputs.output, 4),
                 row_bytes, [&](const Piece& piece) {
                   const int64_t bytes = piece.rows * row_bytes;
                   if (OnDevice(job.outputs.output)) {
                     status.Update(stream->Fill(piece.at, 0, bytes));
                   } else {
                     std::memset(piece.at, 0, static_cast<size_t>(bytes));
                   }
                 });
  }
  if (!status.ok() || !problem.wanted.lse) return status;
  const bool on_device = OnDevice(job.outputs.lse);
  std::optional<Uploader> up;
  if (on_device) up.emplace(*stream);
  ForEachPiece(problem, internal::AddExtents(job.outputs.lse, 3), sizeof(float),
               [&](const Piece& piece) {
                 // The head's sink, or -inf.
                 const std::vector<float> lse(
                     static_cast<size_t>(piece.rows),
                     problem.Sink(piece.batch, piece.head));
                 const size_t bytes = lse.size() * sizeof(float);
                 if (on_device) {
                   // What lies between two pieces is the caller's.
                   up->Begin(piece.at);
                   up->Append(lse.data(), static_cast<int64_t>(bytes));
                 } else {
                   std::memcpy(piece.at, lse.data(), bytes);
                 }
               });
  return on_device ? up->Finish() : status;
}

}  // namespace attention::cuda
