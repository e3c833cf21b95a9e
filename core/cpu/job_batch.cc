#include "core/cpu/job_batch.h"

#include <algorithm>
#include <deque>
#include <new>
#include <stop_token>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/functional/function_ref.h"
#include "core/cpu/job_run.h"
#include "core/cpu/small_problem.h"
#include "core/result_places.h"

namespace attention::cpu {
namespace {

// Multiplications below which the calling thread computes alone: handing work
// over would take longer.
constexpr double kFewMultiplications = 32 * 1024;

// Pieces of several jobs, numbered one job after the other.
class Pieces {
 public:
  void Add(int64_t count) { ends_.push_back(size() + count); }
  int64_t size() const { return ends_.empty() ? 0 : ends_.back(); }

  /// Calls work(job, piece of it).
  template <typename Work>
  void Visit(int64_t index, const Work& work) const {
    const auto job =
        static_cast<size_t>(absl::c_upper_bound(ends_, index) - ends_.begin());
    work(job, index - (job == 0 ? 0 : ends_[job - 1]));
  }

 private:
  std::vector<int64_t> ends_;
};

void ForEach(int64_t count, bool alone, const std::stop_token& stop,
             const RunContext& context, absl::FunctionRef<void(int64_t)> body) {
  if (!alone) return context.workers.ParallelFor(count, stop, body);
  for (int64_t index = 0; index < count && !stop.stop_requested(); ++index) {
    body(index);
  }
}

// False where it is not for the kernel of small problems, or not all of it.
bool RunSmall(AttentionJob& job, const RunContext& context,
              const Kernels& kernels) {
  const ValidatedProblem& problem = *job.problem;
  if (job.stop.stop_requested() || !IsSmallProblem(problem)) return false;
  const ResultPlaces places(problem, job.outputs);
  if (!ComputeSmall(problem, places, kernels, 0, problem.batch)) return false;
  job.kernel = kSmallKernel;
  job.tiles_total = job.tiles_computed = 1;
  job.status = absl::OkStatus();
  if (context.on_tile) context.on_tile();
  return true;
}

// Those that are left.
std::vector<AttentionJob*> RunSmall(absl::Span<AttentionJob> jobs,
                                    const RunContext& context,
                                    const Kernels& kernels) {
  std::vector<char> computed(jobs.size());
  context.workers.ParallelFor(
      static_cast<int64_t>(jobs.size()), {}, [&](int64_t index) {
        const auto n = static_cast<size_t>(index);
        computed[n] = RunSmall(jobs[n], context, kernels) ? 1 : 0;
      });
  std::vector<AttentionJob*> left;
  for (size_t n = 0; n < jobs.size(); ++n) {
    if (computed[n] == 0) left.push_back(&jobs[n]);
  }
  return left;
}

void RunInPieces(const std::vector<AttentionJob*>& jobs,
                 const RunContext& context, const Kernels& kernels) {
  std::deque<JobRun> runs;
  Pieces pieces;
  Pieces merges;
  double multiplications = 0;
  double attended = 0;
  for (AttentionJob* job : jobs) {
    const JobRun& run = runs.emplace_back(*job, context, kernels);
    multiplications += run.Multiplications();
    attended += run.Attended();
  }
  for (JobRun& run : runs) {
    pieces.Add(run.Begin(attended));
    merges.Add(run.merges());
  }
  const bool alone = multiplications <= kFewMultiplications;
  // Of several, each looks at its own.
  const std::stop_token stop =
      jobs.size() == 1 ? jobs[0]->stop : std::stop_token();
  ForEach(pieces.size(), alone, stop, context, [&](int64_t index) {
    pieces.Visit(index, [&runs](size_t job, int64_t piece) {
      runs[job].ComputePiece(piece);
    });
  });
  ForEach(merges.size(), alone, stop, context, [&](int64_t index) {
    merges.Visit(index, [&runs](size_t job, int64_t merge) {
      runs[job].ComputeMerge(merge);
    });
  });
  for (JobRun& run : runs) run.End();
}

}  // namespace

void RunTogether(absl::Span<AttentionJob> jobs, const RunContext& context,
                 const Kernels& kernels) {
  for (AttentionJob& job : jobs) job.kernel = {};
  // Most requests are one small problem, and no list is worth making for it.
  if (jobs.size() == 1 && RunSmall(jobs[0], context, kernels)) return;
  try {
    RunInPieces(jobs.size() == 1 ? std::vector{&jobs[0]}
                                 : RunSmall(jobs, context, kernels),
                context, kernels);
  } catch (const std::bad_alloc&) {
    for (AttentionJob& job : jobs) {
      if (!job.kernel.empty()) continue;  // computed before
      job.status = absl::ResourceExhaustedError("no memory for a tile");
    }
  }
}

int64_t WorkingBytes(absl::Span<const ValidatedProblem> problems,
                     const RunContext& context, const Kernels& kernels,
                     int64_t of_thread) {
  int64_t pieces = 0;
  int64_t piece_bytes = 0;
  int64_t shared_bytes = 0;
  for (const ValidatedProblem& problem : problems) {
    if (IsSmallProblem(problem)) continue;
    AttentionJob job;
    job.problem = &problem;
    JobRun run(job, context, kernels);
    pieces += run.plan().chunks() * run.plan().splits;
    piece_bytes = std::max(piece_bytes, run.PieceBytes());
    shared_bytes += run.SharedBytes();
  }
  // What each job of several is kept by.
  const auto runs = problems.size() > 1
                        ? static_cast<int64_t>(problems.size()) *
                              static_cast<int64_t>(sizeof(JobRun))
                        : 0;
  return std::min<int64_t>(context.workers.threads(), pieces) *
             std::max<int64_t>(0, piece_bytes - of_thread) +
         shared_bytes + runs;
}

}  // namespace attention::cpu
