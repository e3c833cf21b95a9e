#include "core/self_check.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "core/reference/reference_backend.h"
#include "core/self_check_cases.h"
#include "core/self_check_results.h"
#include "core/validate.h"

namespace attention {
namespace {

using self_check::Compare;
using self_check::Compute;
using self_check::Failed;
using self_check::Results;

// A case with what the reference makes of it.
struct Prepared {
  const SelfCheckCase* made;
  ValidatedProblem problem;
  Results expected;
};

absl::StatusOr<Prepared> Prepare(const SelfCheckCase& made,
                                 const Backend& reference,
                                 WorkerPool& workers) {
  absl::StatusOr<ValidatedProblem> problem = Validate(made.problem());
  if (!problem.ok()) return problem.status();
  std::string kernel;
  absl::StatusOr<Results> expected =
      Compute(reference, *problem, workers, kernel);
  if (!expected.ok()) return expected.status();
  return Prepared{&made, *std::move(problem), *std::move(expected)};
}

absl::Status CheckOnce(const Prepared& prepared, const Backend& backend,
                       WorkerPool& workers) {
  std::string kernel;
  const auto found = Compute(backend, prepared.problem, workers, kernel);
  const absl::Status status =
      found.ok() ? Compare(prepared.problem, prepared.expected, *found)
                 : found.status();
  return status.ok() ? status : Failed(prepared.made->name(), kernel, status);
}

absl::Status Check(const Prepared& prepared, const Backend& backend,
                   WorkerPool& workers) {
  const size_t devices = std::max<size_t>(1, backend.devices().size());
  // Devices take turns.
  for (size_t n = 0; n < devices; ++n) {
    absl::Status status = CheckOnce(prepared, backend, workers);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The same problem, its keys and values in pages of a length that no tile has.
absl::StatusOr<ValidatedProblem> InPages(AttentionProblem problem) {
  constexpr int64_t kPageKeys = 24;
  const KeyValueBlock whole = problem.key_value[0];
  const int64_t keys = whole.key.shape[2];
  problem.key_value.clear();
  for (int64_t first = 0; first < keys; first += kPageKeys) {
    KeyValueBlock page = whole;
    for (TensorView* view : {&page.key, &page.value}) {
      view->data += first * view->strides[2];
      view->shape[2] = std::min(kPageKeys, keys - first);
    }
    problem.key_value.push_back(page);
  }
  return Validate(problem);
}

// All cases are given to the backend in one call, every other one in pages.
absl::Status CheckTogether(const std::vector<Prepared>& cases,
                           const Backend& backend, WorkerPool& workers) {
  std::vector<ValidatedProblem> problems;
  std::vector<Results> found;
  for (size_t n = 0; n < cases.size(); ++n) {
    absl::StatusOr<ValidatedProblem> problem = cases[n].problem;
    if (n % 2 == 1) problem = InPages(cases[n].made->problem());
    if (!problem.ok()) return problem.status();
    problems.push_back(*std::move(problem));
    absl::StatusOr<Results> results = self_check::MakeResults(problems.back());
    if (!results.ok()) return results.status();
    found.push_back(*std::move(results));
  }
  std::vector<AttentionJob> jobs;
  jobs.reserve(cases.size());
  for (size_t n = 0; n < cases.size(); ++n) {
    jobs.push_back(self_check::JobOf(problems[n], found[n]));
  }
  backend.Run(absl::MakeSpan(jobs), {workers});
  for (size_t n = 0; n < cases.size(); ++n) {
    const absl::Status status =
        jobs[n].status.ok()
            ? Compare(cases[n].problem, cases[n].expected, found[n])
            : jobs[n].status;
    if (!status.ok()) {
      return Failed(cases[n].made->name(), jobs[n].kernel, status);
    }
  }
  return absl::OkStatus();
}

// Threads compute the same cases, each in another order. The first failure.
absl::Status CheckAtOnce(const std::vector<const Prepared*>& cases,
                         const Backend& backend, WorkerPool& workers) {
  constexpr size_t kThreads = 3;
  std::array<absl::Status, kThreads> statuses;
  std::vector<std::thread> threads;
  threads.reserve(kThreads);
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (size_t n = 0; n < cases.size() && statuses[t].ok(); ++n) {
        statuses[t] =
            Check(*cases[(n + t * cases.size() / kThreads) % cases.size()],
                  backend, workers);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  absl::Status status;
  for (const absl::Status& of_thread : statuses) status.Update(of_thread);
  return status;
}

}  // namespace

absl::Status SelfCheck(const Backend& backend, WorkerPool& workers,
                       const OnCase& on_case) {
  const std::unique_ptr<Backend> reference = MakeReferenceBackend();
  const std::vector<SelfCheckCase> cases = SelfCheckCases();
  std::vector<Prepared> all;
  for (const SelfCheckCase& made : cases) {
    on_case(made.name());
    absl::StatusOr<Prepared> prepared = Prepare(made, *reference, workers);
    if (!prepared.ok()) return prepared.status();
    absl::Status status = Check(*prepared, backend, workers);
    if (!status.ok()) return status;
    all.push_back(*std::move(prepared));
  }
  on_case("all together");
  for (size_t n = 0; n < std::max<size_t>(1, backend.devices().size()); ++n) {
    absl::Status status = CheckTogether(all, backend, workers);
    if (!status.ok()) return status;
  }
  std::vector<const Prepared*> at_once;
  for (const Prepared& prepared : all) {
    if (prepared.made->at_once()) at_once.push_back(&prepared);
  }
  on_case("several at once");
  return CheckAtOnce(at_once, backend, workers);
}

}  // namespace attention
