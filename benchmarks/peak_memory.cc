#include "benchmarks/peak_memory.h"

#include <link.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace attention::bench {
namespace {

// Reads a byte of every page of code and constants, so that those that a run is
// the first to use are not taken for its memory. The address sanitizer, which
// poisons what lies between constants, looks away.
__attribute__((no_sanitize("address"))) int TouchCode(dl_phdr_info* object,
                                                      size_t, void* sum) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (int n = 0; n < object->dlpi_phnum; ++n) {
    const ElfW(Phdr)& segment = object->dlpi_phdr[n];
    if (segment.p_type != PT_LOAD || (segment.p_flags & PF_R) == 0) continue;
    const size_t begin = object->dlpi_addr + segment.p_vaddr;
    for (size_t at = begin; at < begin + segment.p_filesz; at += page) {
      // NOLINTBEGIN(performance-no-int-to-ptr): that is how ELF says it
      *static_cast<unsigned*>(sum) +=
          *reinterpret_cast<const volatile unsigned char*>(at);
      // NOLINTEND(performance-no-int-to-ptr)
    }
  }
  return 0;
}

// A line of /proc/self/status in bytes; -1 where there is none.
int64_t StatusLine(const std::string& name) {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != name + ":") continue;
    int64_t kib = -1;
    status >> kib;
    return kib < 0 ? -1 : kib * 1024;
  }
  return -1;
}

}  // namespace

absl::StatusOr<int64_t> PeakMemoryOfFirstRun(Runner& runner) {
  unsigned sum = 0;
  dl_iterate_phdr(TouchCode, &sum);
  // "5" sets the peak (VmHWM) back to what the process has now: see proc(5).
  if (!(std::ofstream("/proc/self/clear_refs") << "5" << std::flush)) {
    return absl::UnavailableError("/proc/self/clear_refs cannot be written");
  }
  const int64_t before = StatusLine("VmRSS");
  if (absl::Status status = runner.Run(); !status.ok()) return status;
  const int64_t peak = StatusLine("VmHWM");
  if (before < 0 || peak < 0) {
    return absl::UnavailableError(
        "/proc/self/status has no VmRSS and VmHWM here");
  }
  return peak - before;
}

}  // namespace attention::bench
