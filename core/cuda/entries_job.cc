#include "core/cuda/entries_job.h"

#include <algorithm>
#include <initializer_list>
#include <numeric>
#include <tuple>
#include <utility>

#include "core/cuda/cuda_job.h"
#include "core/cuda/job_transfer.h"
#include "core/cuda/plan_memory.h"

namespace attention::cuda {
namespace {

// Entries of one class go through one kernel (KernelTable).
auto ClassOf(const Plan& plan, const AttentionArgs& args) {
  const bool mma = plan.method == Method::kMma;
  return std::tuple(mma, args.score, mma ? args.query.type : Element::kFloat32,
                    mma ? MmaWidth(args) : 0,
                    mma ? MmaRows(args) : AttendSide(args),
                    args.value.width <= 64);
}

LaunchShape ShapeInMma(const AttentionArgs& args) {
  LaunchShape shape = MmaShape(args);
  shape.shared_bytes = static_cast<int32_t>(MmaEntryBytes(args));
  return shape;
}

LaunchShape ShapeInMerge(const AttentionArgs& args) {
  LaunchShape shape = MergeShape(args);
  if (args.splits == 1) shape.blocks = 0;
  return shape;
}

LaunchShape ShapeInRecompute(const AttentionArgs& args) {
  return RecomputeShape(args);
}

template <typename T>
void AppendAll(const std::vector<T>& all, std::byte* to, Uploader& up) {
  if (all.empty()) return;
  up.BeginNext(to);
  up.Append(static_cast<const void*>(all.data()),
            static_cast<int64_t>(all.size() * sizeof(T)));
}

}  // namespace

bool ServesEntries(const ValidatedProblem& problem, const Plan& plan) {
  return (plan.method == Method::kTiles || plan.method == Method::kMma) &&
         !problem.wanted.weights && !plan.project_query && !plan.project_key;
}

int64_t MostBlocks(const Plan& plan) {
  return Product(
      {ResultRows(plan.args), ValueStrips(plan.args), plan.args.splits});
}

EntriesJob::EntriesJob(std::vector<Entry> entries, const RunContext& context,
                       Device& device)
    : entries_(std::move(entries)),
      context_(context),
      kernels_(device.kernels()) {
  size_t pages = 0;
  for (const Entry& entry : entries_) {
    offsets_.push_back(Place(entry.plan.scratch_at));
    mark_bytes_ += ResultRows(entry.plan.args);
    if (!entry.pages) continue;
    const auto& blocks = entry.job->problem->key_value;
    pages += blocks.size();
    if (entry.pages->on_device) continue;
    for (const auto& block : blocks) {
      uploads_.Add(block, entry.pages->page_keys);
    }
  }
  const auto count = static_cast<int64_t>(entries_.size());
  // Side by side, so that they are brought in one copy.
  page_addresses_at_ = Place(static_cast<int64_t>(2 * pages * sizeof(void*)));
  args_at_ = Place(count * static_cast<int64_t>(sizeof(AttentionArgs)));
  // Of attend or attend_mma, and of merge.
  blocks_at_ = Place(2 * count * static_cast<int64_t>(sizeof(int64_t)));
  pages_ = Place(uploads_.bytes());
  PlaceScratchAndResults();
  marks_ = Place(mark_bytes_);
}

// Inputs of all entries lie side by side already, and so do results from here
// on: each go in one copy.
void EntriesJob::PlaceScratchAndResults() {
  const auto place = [&](size_t n, int64_t begin, int64_t end,
                         std::initializer_list<Buffer*> buffers) {
    const int64_t moved = Place(end - begin) - begin - offsets_[n];
    for (Buffer* const buffer : buffers) buffer->offset += moved;
  };
  for (size_t n = 0; n < entries_.size(); ++n) {
    Plan& plan = entries_[n].plan;
    place(n, plan.scratch_at, plan.results_at, {&plan.partials});
  }
  for (size_t n = 0; n < entries_.size(); ++n) {
    Plan& plan = entries_[n].plan;
    place(n, plan.results_at, plan.bytes, {&plan.output, &plan.lse});
  }
}

int64_t EntriesJob::Place(int64_t bytes) {
  const int64_t offset = bytes_;
  bytes_ = CeilDivide(bytes_ + bytes, kPlaceAlignment) * kPlaceAlignment;
  return offset;
}

absl::Status EntriesJob::Run(Stream& stream, std::byte* memory) {
  stream_ = &stream;
  memory_ = memory;
  SetArgs();
  AddLaunches();
  absl::Status status = Upload();
  if (status.ok()) status = RunLaunches();
  if (status.ok()) status = Download();
  // The memory is the next job's once this returns.
  absl::Status done = stream.Synchronize();
  if (status.ok() && done.ok() && *stream.marked() != 0) {
    status = Recompute();
    done = stream.Synchronize();
  }
  const bool told = !status.ok() && !absl::IsCancelled(status);
  return told || done.ok() ? status : done;
}

void EntriesJob::SetArgs() {
  const size_t count = entries_.size();
  std::vector<AttentionArgs> args;
  std::byte* marks = memory_ + marks_;
  for (size_t n = 0; n < count; ++n) {
    const Entry& entry = entries_[n];
    args.push_back(
        ArgsOf(*entry.job, entry.plan, *stream_, memory_ + offsets_[n]));
    AttentionArgs& of = args.back();
    of.marks = reinterpret_cast<RowMark*>(marks);
    marks += ResultRows(of);
    if (!entry.pages) continue;
    std::vector<const void*> values;
    const auto* const table =
        reinterpret_cast<const void* const*>(memory_ + page_addresses_at_);
    of.key_pages = table + page_addresses_.size();
    for (const auto& block : entry.job->problem->key_value) {
      if (entry.pages->on_device) {
        page_addresses_.push_back(block.key.data);
        values.push_back(block.value.data);
      } else {
        const auto place = uploads_.Add(block, entry.pages->page_keys);
        page_addresses_.push_back(memory_ + pages_ + place.key);
        values.push_back(memory_ + pages_ + place.value);
      }
    }
    of.value_pages = table + page_addresses_.size();
    page_addresses_.insert(page_addresses_.end(), values.begin(), values.end());
    of.key.length = of.value.length = entry.pages->page_keys;
  }
  order_.resize(count);
  std::iota(order_.begin(), order_.end(), size_t{0});
  std::stable_sort(order_.begin(), order_.end(), [&](size_t a, size_t b) {
    return ClassOf(entries_[a].plan, args[a]) <
           ClassOf(entries_[b].plan, args[b]);
  });
  for (const size_t n : order_) args_.push_back(args[n]);
}

void EntriesJob::AddLaunch(absl::string_view kernel, Kernel run, size_t first,
                           size_t count, ShapeOf shape_of) {
  Launch launch = {.kernel = kernel,
                   .run = run,
                   .first = first,
                   .count = count,
                   .first_blocks = first_blocks_.size()};
  LaunchShape& all = launch.shape;
  for (size_t n = first; n < first + count; ++n) {
    const LaunchShape shape = shape_of(args_[n]);
    first_blocks_.push_back(all.blocks);
    all.blocks += shape.blocks;
    all.threads = shape.threads;
    all.shared_bytes = std::max(all.shared_bytes, shape.shared_bytes);
    if (shape.blocks > 0) ++entries_[order_[n]].job->tiles_total;
  }
  if (all.blocks > 0) launches_.push_back(launch);
}

void EntriesJob::AddLaunches() {
  const size_t count = args_.size();
  const auto class_of = [&](size_t n) {
    return ClassOf(entries_[order_[n]].plan, args_[n]);
  };
  for (const Entry& entry : entries_) {
    entry.job->tiles_total = entry.job->tiles_computed = 0;
  }
  for (size_t first = 0, end = 0; first < count; first = end) {
    while (end < count && class_of(end) == class_of(first)) ++end;
    if (entries_[order_[first]].plan.method == Method::kMma) {
      AddLaunch("attend_mma", kernels_.attend_mma_entries, first, end - first,
                ShapeInMma);
    } else {
      AddLaunch("attend", kernels_.attend_entries, first, end - first,
                AttendShape);
    }
  }
  AddLaunch("merge", kernels_.merge_entries, 0, count, ShapeInMerge);
}

absl::Status EntriesJob::Upload() {
  Uploader up(*stream_, &context_.workers);
  for (size_t n = 0; n < entries_.size(); ++n) {
    const Entry& entry = entries_[n];
    absl::Status status =
        UploadInputs(*entry.job->problem, entry.plan, kernels_, *stream_,
                     memory_ + offsets_[n], up);
    if (!status.ok()) return status;
  }
  AppendAll(page_addresses_, memory_ + page_addresses_at_, up);
  AppendAll(args_, memory_ + args_at_, up);
  AppendAll(first_blocks_, memory_ + blocks_at_, up);
  uploads_.Bring(memory_ + pages_, up);
  absl::Status status = up.Finish();
  static_assert(static_cast<int>(RowMark::kNone) == 0);
  *stream_->marked() = 0;
  status.Update(stream_->Fill(memory_ + marks_, 0, mark_bytes_));
  return status;
}

absl::Status EntriesJob::BeginLaunch(const Launch& launch) {
  const AttentionJob& any = *entries_.front().job;
  if (any.look) any.look();
  if (any.stop.stop_requested()) {
    return absl::CancelledError("stopped before a launch of several entries");
  }
  const auto blocks =
      first_blocks_.begin() + static_cast<std::ptrdiff_t>(launch.first_blocks);
  for (size_t n = 0; n < launch.count; ++n) {
    const int64_t end = n + 1 < launch.count
                            ? blocks[static_cast<std::ptrdiff_t>(n + 1)]
                            : launch.shape.blocks;
    if (end > blocks[static_cast<std::ptrdiff_t>(n)]) {
      ++entries_[order_[launch.first + n]].job->tiles_computed;
    }
  }
  if (context_.on_tile) context_.on_tile();
  return absl::OkStatus();
}

absl::Status EntriesJob::RunLaunches() {
  absl::Status status;
  for (const Launch& launch : launches_) {
    status = BeginLaunch(launch);
    if (!status.ok()) return status;
    const EntriesArgs args = {
        .entries = reinterpret_cast<const AttentionArgs*>(memory_ + args_at_) +
                   launch.first,
        .first_blocks = reinterpret_cast<const int64_t*>(memory_ + blocks_at_) +
                        launch.first_blocks,
        .count = static_cast<int64_t>(launch.count)};
    status = stream_->Launched(
        launch.kernel,
        launch.run(args, args_[launch.first], launch.shape, stream_->handle()));
    if (!status.ok()) return status;
  }
  return status;
}

absl::Status EntriesJob::Download() {
  if (entries_.front().job->stop.stop_requested()) {
    return absl::CancelledError("stopped after the last tile");
  }
  Downloader down(*stream_);
  absl::Status status;
  for (size_t n = 0; n < entries_.size() && status.ok(); ++n) {
    const Entry& entry = entries_[n];
    status = DownloadResults(*entry.job, entry.plan, kernels_, *stream_,
                             memory_ + offsets_[n], down);
  }
  status.Update(down.Finish());
  return status;
}

absl::Status EntriesJob::Recompute() {
  first_blocks_.clear();
  launches_.clear();
  for (AttentionArgs& args : args_) args.splits = 1;
  const size_t count = args_.size();
  const auto class_of = [&](size_t n) {
    return std::tuple(args_[n].score, args_[n].value.width <= 64);
  };
  for (size_t first = 0, end = 0; first < count; first = end) {
    while (end < count && class_of(end) == class_of(first)) ++end;
    AddLaunch("recompute", kernels_.recompute_entries, first, end - first,
              ShapeInRecompute);
  }
  Uploader up(*stream_);
  AppendAll(args_, memory_ + args_at_, up);
  AppendAll(first_blocks_, memory_ + blocks_at_, up);
  absl::Status status = up.Finish();
  if (status.ok()) status = RunLaunches();
  return status.ok() ? Download() : status;
}

}  // namespace attention::cuda
