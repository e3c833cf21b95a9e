#include "core/cpu/careful_copies.h"

#include <cstring>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "core/cpu/careful_rows.h"
#include "core/cpu/scratch.h"
#include "core/cpu/zero_rows.h"

namespace attention::cpu {
namespace {

// Copies results of rows of one batch entry.
class RowCopier {
 public:
  RowCopier(const JobRun& run, int64_t batch)
      : problem_(run.problem()), outputs_(run.outputs()), batch_(batch) {}

  void Copy(RowId from, RowId to) const {
    const int64_t element = ByteSize(problem_.query.type);
    CopyRow(outputs_.output.data, problem_.value_width * element, from, to);
    if (problem_.wanted.lse) {
      CopyRow(outputs_.lse.data, sizeof(float), from, to);
    }
    if (problem_.wanted.weights) {
      CopyRow(outputs_.weights.data,
              problem_.key_length * int64_t{sizeof(float)}, from, to);
    }
  }

 private:
  void CopyRow(std::byte* data, int64_t bytes, RowId from, RowId to) const {
    if (bytes == 0) return;
    std::memcpy(data + ResultRow(problem_, batch_, to) * bytes,
                data + ResultRow(problem_, batch_, from) * bytes,
                static_cast<size_t>(bytes));
  }

  const ValidatedProblem& problem_;
  const AttentionOutputs& outputs_;
  const int64_t batch_;
};

bool ComputeRows(JobRun& run, int64_t batch, absl::Span<const RowId> rows) {
  if (rows.empty()) return true;
  Scratch count;
  const CarefulRows counted(run, count);
  std::byte* const memory = ThreadMemory(count.used());
  if (memory == nullptr) {
    run.SetOutOfMemory();
    return false;
  }
  Scratch scratch(memory);
  return CarefulRows(run, scratch).Compute(batch, rows);
}

}  // namespace

bool ComputeCarefulRows(JobRun& run, int64_t batch,
                        absl::Span<const RowId> rows) {
  ZeroRows& zeros = run.zero_rows();
  std::vector<RowId> computed;
  std::map<ZeroRows::Keys, RowId> firsts;       // among those computed
  std::vector<std::pair<RowId, RowId>> copied;  // from, to
  ZeroRows::Keys last_keys;                     // mostly those of the next row
  std::optional<RowId> last;
  for (const RowId row : rows) {
    if (!zeros.Holds(batch, row)) {
      computed.push_back(row);
      continue;
    }
    const ZeroRows::Keys keys = zeros.KeysOf(batch, row);
    if (!last || keys != last_keys) {
      last_keys = keys;
      last = zeros.Find(keys);
    }
    if (!last) {
      const auto [first, is_first] = firsts.emplace(keys, row);
      last = first->second;
      if (is_first) {
        computed.push_back(row);
        continue;
      }
    }
    copied.emplace_back(*last, row);
  }
  if (!ComputeRows(run, batch, computed)) return false;
  for (const auto& [keys, row] : firsts) zeros.Add(keys, row);
  const RowCopier copier(run, batch);
  for (const auto& [from, to] : copied) copier.Copy(from, to);
  return true;
}

}  // namespace attention::cpu
