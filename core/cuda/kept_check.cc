#include "core/cuda/kept_check.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/cuda/cuda_backend.h"
#include "core/reference/reference_backend.h"
#include "core/self_check_cases.h"
#include "core/self_check_results.h"
#include "core/store/page_budget.h"
#include "core/store/page_layout.h"
#include "core/store/sequence.h"
#include "core/validate.h"
#include "core/worker_pool.h"

namespace attention::cuda {
namespace {

using store::Sequence;

TensorView Rows(TensorView view, int64_t first, int64_t count) {
  view.data += first * view.strides[2];
  view.shape[2] = count;
  return view;
}

// One sequence with keys of a case, and what the device has of it.
class Kept {
 public:
  // The case must outlive it.
  static absl::StatusOr<Kept> Make(const SelfCheckCase& made) {
    const KeyValueBlock& rows = made.problem().key_value[0];
    auto sequence = Sequence::Create(
        {.heads = rows.key.shape[1],
         .key_width = rows.key.shape[3],
         .value_width = rows.value.shape[3],
         .type = rows.key.type},
        std::make_shared<store::PageBudget>(store::PageBudget::kUnlimited));
    if (!sequence.ok()) return sequence.status();
    return Kept(made, *std::move(sequence));
  }

  absl::StatusOr<Kept> Fork(int64_t length) const {
    auto fork = sequence_->Fork(length);
    if (!fork.ok()) return fork.status();
    return Kept(*made_, *std::move(fork));
  }

  // The case's keys from `first` on.
  absl::Status Append(int64_t first, int64_t count) {
    const KeyValueBlock& rows = made_->problem().key_value[0];
    return sequence_
        ->Append(0, std::nullopt,
                 {Rows(rows.key, first, count), Rows(rows.value, first, count)})
        .status();
  }

  const SelfCheckCase& made() const { return *made_; }
  absl::StatusOr<store::Snapshot> TakeSnapshot() const {
    return sequence_->TakeSnapshot(0);
  }
  int64_t BytesOf(int64_t keys) const {
    const store::SequenceForm& form = sequence_->form();
    return keys * form.heads * (form.key_width + form.value_width) *
           ByteSize(form.type);
  }

 private:
  Kept(const SelfCheckCase& made, std::shared_ptr<Sequence> sequence)
      : made_(&made), sequence_(std::move(sequence)) {}

  const SelfCheckCase* made_;
  std::shared_ptr<Sequence> sequence_;
};

// Keys that a request is to bring.
struct Brings {
  int64_t least = 0;
  int64_t most = 0;
};

class KeptCheck {
 public:
  KeptCheck(std::unique_ptr<Device> device, const PlanOptions& plan)
      : backend_(MakeBackend(std::move(device), plan)) {}

  // Rows that are appended, a fork, and every way in which few and many queries
  // read pages.
  absl::Status CheckReading(const SelfCheckCase& made);
  // Of a case each half of whose keys has room, and not both.
  absl::Status CheckMakingRoom(const SelfCheckCase& made);

 private:
  static std::unique_ptr<Backend> MakeBackend(std::unique_ptr<Device> device,
                                              const PlanOptions& plan) {
    Devices devices;
    devices.push_back(std::move(device));
    return MakeCudaBackend(std::move(devices),
                           {.memory_limit = kKeptCheckMemory, .plan = plan});
  }

  absl::Status Attend(const Kept& kept, int64_t queries, Brings brings,
                      bool weights = false);
  absl::Status Compare(const AttentionProblem& problem, const Kept& kept);

  const std::unique_ptr<Backend> backend_;
  const std::unique_ptr<Backend> reference_ = MakeReferenceBackend();
  WorkerPool workers_{0};
};

absl::Status KeptCheck::Compare(const AttentionProblem& problem,
                                const Kept& kept) {
  const absl::StatusOr<ValidatedProblem> valid = Validate(problem);
  if (!valid.ok()) return valid.status();
  std::string kernel;
  const auto expected =
      self_check::Compute(*reference_, *valid, workers_, kernel);
  if (!expected.ok()) return expected.status();
  const auto found = self_check::Compute(*backend_, *valid, workers_, kernel);
  const absl::Status status =
      found.ok() ? self_check::Compare(*valid, *expected, *found)
                 : found.status();
  return status.ok() ? status
                     : self_check::Failed(kept.made().name(), kernel, status);
}

absl::Status KeptCheck::Attend(const Kept& kept, int64_t queries, Brings brings,
                               bool weights) {
  const absl::StatusOr<store::Snapshot> keys = kept.TakeSnapshot();
  if (!keys.ok()) return keys.status();
  AttentionProblem problem = kept.made().problem();
  problem.query = Rows(problem.query, 0, queries);
  problem.key_value = keys->Blocks();
  problem.wanted.weights = weights;
  const int64_t before = backend_->ReadDevices()[0].page_bytes_brought;
  absl::Status status = Compare(problem, kept);
  if (!status.ok()) return status;
  const int64_t brought =
      backend_->ReadDevices()[0].page_bytes_brought - before;
  const int64_t least = kept.BytesOf(brings.least);
  const int64_t most = kept.BytesOf(brings.most);
  if (brought >= least && brought <= most) return status;
  return absl::InternalError(absl::StrCat(
      kept.made().name(), ": ", brought, " bytes of pages were brought (",
      least, least == most ? "" : absl::StrCat(" to ", most),
      " are expected)"));
}

absl::Status KeptCheck::CheckReading(const SelfCheckCase& made) {
  absl::StatusOr<Kept> kept = Kept::Make(made);
  if (!kept.ok()) return kept.status();
  const auto brings = [](int64_t keys) { return Brings{keys, keys}; };
  const int64_t page = store::kPageKeys;
  absl::Status status = kept->Append(0, page + 36);
  if (status.ok()) status = Attend(*kept, 1, brings(page + 36));
  // Rows for the page that was begun, and for one more.
  if (status.ok()) status = kept->Append(page + 36, 31);
  for (const int64_t queries : {1, 40, 150}) {
    if (!status.ok()) return status;
    status = Attend(*kept, queries, brings(queries == 1 ? 31 : 0));
  }
  if (status.ok()) status = Attend(*kept, 40, brings(0), /*weights=*/true);
  if (!status.ok()) return status;
  // Other keys, in a page of its own, behind those that both have.
  absl::StatusOr<Kept> fork = kept->Fork(page + 20);
  if (!fork.ok()) return fork.status();
  status = fork->Append(2 * page + 3, 7);
  if (status.ok()) status = Attend(*fork, 40, brings(20 + 7));
  if (status.ok()) status = Attend(*kept, 40, brings(0));
  return status;
}

absl::Status KeptCheck::CheckMakingRoom(const SelfCheckCase& made) {
  const int64_t keys = made.problem().key_value[0].key.shape[2] / 2;
  absl::StatusOr<Kept> first = Kept::Make(made);
  if (!first.ok()) return first.status();
  absl::StatusOr<Kept> second = Kept::Make(made);
  if (!second.ok()) return second.status();
  const int64_t queries = made.problem().query.shape[2];
  absl::Status status = first->Append(0, keys);
  if (status.ok()) status = second->Append(keys, keys);
  if (status.ok()) status = Attend(*first, queries, {keys, keys});
  if (status.ok()) status = Attend(*second, queries, {keys, keys});
  // Some of its pages had to go.
  if (status.ok()) status = Attend(*first, queries, {1, keys - 1});
  if (status.ok()) status = Attend(*first, queries, {0, 0});
  return status;
}

}  // namespace

absl::Status CheckKeptPages(std::unique_ptr<Device> device,
                            const PlanOptions& plan, const OnCase& on_case) {
  KeptCheck check(std::move(device), plan);
  absl::Status status;
  const auto read = [&](const SelfCheckOutline& outline) {
    if (!status.ok()) return;
    const SelfCheckCase made(absl::StrCat("kept pages, ", Name(outline.type),
                                          " width ", outline.width),
                             outline);
    on_case(made.name());
    status = check.CheckReading(made);
  };
  constexpr int64_t kQueries = 150;
  constexpr int64_t kKeys = 2 * store::kPageKeys + 10;
  for (const int64_t width : {40, 130}) {
    read({.query_length = kQueries, .key_length = kKeys, .width = width});
  }
  for (const DataType type : {DataType::kFloat16, DataType::kBFloat16}) {
    for (const int64_t width : {64, 128, 256}) {
      read({.type = type,
            .query_heads = 4,
            .query_length = kQueries,
            .key_length = kKeys,
            .width = width,
            // Values of another width are not for Hopper's own instructions.
            .value_width = width == 64 ? 64 : width - 8});
    }
  }
  if (!status.ok()) return status;
  // Twice 25 pages of 64 KiB; half of the limit has room for 48.
  const SelfCheckCase large(
      "kept pages, more than there is room for",
      {.query_length = 20, .key_length = 3200, .width = 64});
  on_case(large.name());
  return check.CheckMakingRoom(large);
}

}  // namespace attention::cuda
