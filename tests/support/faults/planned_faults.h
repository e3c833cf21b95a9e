#ifndef ATTENTION_TESTS_SUPPORT_FAULTS_PLANNED_FAULTS_H_
#define ATTENTION_TESTS_SUPPORT_FAULTS_PLANNED_FAULTS_H_

#include <string>
#include <vector>

#include "tests/support/faults/fault_plan.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {

/// A plan of faults, and how to start a program that has them.
class PlannedFaults {
 public:
  /// A plan without faults.
  PlannedFaults();
  ~PlannedFaults();
  PlannedFaults(const PlannedFaults&) = delete;
  PlannedFaults& operator=(const PlannedFaults&) = delete;

  /// What stands before the program's name and arguments: env with the library
  /// and the plan.
  std::vector<std::string> BeforeProgram() const;

  FaultPlan& plan() { return *plan_; }

 private:
  TemporaryFolder folder_;
  FaultPlan* plan_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_FAULTS_PLANNED_FAULTS_H_
