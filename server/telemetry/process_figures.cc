#include "server/telemetry/process_figures.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/numbers.h"

namespace attention::server {
namespace {

// Of /proc/self/stat (man 5 proc), counted from the first after the program's
// name, which may hold spaces and parentheses.
constexpr size_t kThreads = 17;
constexpr size_t kStartTime = 19;  // ticks since the machine started
constexpr size_t kVirtualBytes = 20;
constexpr size_t kResidentPages = 21;

std::string ReadFile(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file),
          std::istreambuf_iterator<char>()};
}

std::vector<double> StatFields() {
  const std::string stat = ReadFile("/proc/self/stat");
  std::vector<double> fields;
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return fields;
  std::istringstream rest(stat.substr(name_end + 1));
  for (std::string word; rest >> word;) {
    double value = 0;
    (void)absl::SimpleAtod(word, &value);  // the state is a letter
    fields.push_back(value);
  }
  return fields;
}

// Seconds since 1970.
double MachineStart() {
  constexpr char kKey[] = "\nbtime ";
  const std::string stat = ReadFile("/proc/stat");
  const size_t found = stat.find(kKey);
  if (found == std::string::npos) return 0;
  const size_t begin = found + sizeof(kKey) - 1;
  double value = 0;
  (void)absl::SimpleAtod(stat.substr(begin, stat.find('\n', begin) - begin),
                         &value);
  return value;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         static_cast<double>(time.tv_usec) * 1e-6;
}

double OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator open("/proc/self/fd", error);
  if (error) return 0;
  // Less the one that they are read by.
  return static_cast<double>(std::distance(begin(open), end(open))) - 1;
}

}  // namespace

ProcessFigures ReadProcessFigures() {
  ProcessFigures figures;
  rusage usage{};
  if (::getrusage(RUSAGE_SELF, &usage) == 0) {
    figures.cpu_seconds = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  if (const std::vector<double> stat = StatFields();
      stat.size() > kResidentPages) {
    figures.threads = stat[kThreads];
    figures.start_time =
        MachineStart() +
        stat[kStartTime] / static_cast<double>(::sysconf(_SC_CLK_TCK));
    figures.virtual_bytes = stat[kVirtualBytes];
    figures.resident_bytes =
        stat[kResidentPages] * static_cast<double>(::sysconf(_SC_PAGESIZE));
  }
  figures.open_descriptors = OpenDescriptors();
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    figures.most_descriptors = static_cast<double>(limit.rlim_cur);
  }
  return figures;
}

}  // namespace attention::server
