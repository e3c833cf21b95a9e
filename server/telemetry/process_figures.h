#ifndef ATTENTION_SERVER_TELEMETRY_PROCESS_FIGURES_H_
#define ATTENTION_SERVER_TELEMETRY_PROCESS_FIGURES_H_

namespace attention::server {

/// What the kernel says of this process; 0 where it does not say.
struct ProcessFigures {
  double cpu_seconds = 0;  // of user and system together
  double start_time = 0;   // seconds since 1970
  double virtual_bytes = 0;
  double resident_bytes = 0;
  double threads = 0;
  double open_descriptors = 0;
  double most_descriptors = 0;
};

ProcessFigures ReadProcessFigures();

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TELEMETRY_PROCESS_FIGURES_H_
