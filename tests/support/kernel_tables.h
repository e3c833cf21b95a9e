#ifndef ATTENTION_TESTS_SUPPORT_KERNEL_TABLES_H_
#define ATTENTION_TESTS_SUPPORT_KERNEL_TABLES_H_

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/support/factors.h"

namespace attention::test {

/// What a kernel of the cpu backend supports: those levels of every option, and
/// sizes that fill its tiles. Levels that are not in its table it leaves to
/// other kernels, by design. Rows are each level alone, beside the first one of
/// every other factor, and a covering array of all pairs.
struct KernelTable {
  std::string name;
  std::vector<std::string> kernels;  // as AttentionJob::kernel names them
  std::vector<Factor> factors;
  std::vector<std::vector<int>> rows;
};

const std::vector<KernelTable>& KernelTables();

/// (table, row) of all rows of all tables.
std::vector<std::pair<size_t, size_t>> KernelTableRows();

/// The kernels that an instruction set of the cpu backend (CpuTestTargets())
/// has.
std::vector<std::string> KernelsOfCpu(const std::string& instruction_set);

/// Which levels kernels have answered.
class KernelCoverage {
 public:
  /// Of these kernels, which must have tables.
  explicit KernelCoverage(const std::vector<std::string>& kernels);

  /// Whether a row of a table has a level that one of the table's kernels has
  /// not answered yet: others need not be computed.
  bool Needs(const KernelTable& table, size_t row) const;
  /// `kernel` has answered a row of a table.
  void Add(const std::string& kernel, const KernelTable& table, size_t row);

  /// A line for each option's level that a kernel supports and has not
  /// answered: "bf16_amx: bias (Lq, Lk)"; for one that has answered nothing,
  /// its name alone.
  std::vector<std::string> Missing() const;

 private:
  // Of a kernel, "factor level".
  std::map<std::string, std::set<std::string>> answered_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_KERNEL_TABLES_H_
