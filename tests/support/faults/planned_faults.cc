#include "tests/support/faults/planned_faults.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <new>

#include "absl/strings/str_cat.h"

namespace attention::test {
namespace {

constexpr char kFileName[] = "/plan";

}  // namespace

PlannedFaults::PlannedFaults() {
  const int file = ::open((folder_.path() + kFileName).c_str(),
                          O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (file < 0 || ::ftruncate(file, sizeof(FaultPlan)) != 0) std::abort();
  void* const mapped = ::mmap(nullptr, sizeof(FaultPlan),
                              PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  if (mapped == MAP_FAILED) std::abort();
  plan_ = new (mapped) FaultPlan;
}

PlannedFaults::~PlannedFaults() { ::munmap(plan_, sizeof(FaultPlan)); }

std::vector<std::string> PlannedFaults::BeforeProgram() const {
  return {"/usr/bin/env", "LD_PRELOAD=" ATTENTION_FAULTS_LIBRARY,
          absl::StrCat(kFaultPlanVariable, "=", folder_.path(), kFileName)};
}

}  // namespace attention::test
