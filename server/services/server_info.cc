#include "server/services/server_info.h"

#include <memory>
#include <optional>
#include <string>

#include "server/base/version.h"
#include "server/request/idle_limit.h"

namespace attention::server {

void FillServerInfo(const ServerOptions& options, const Engine& engine,
                    v1::GetServerInfoResponse& info) {
  info.set_version(Version());
  for (const std::unique_ptr<Backend>& backend : engine.backends()) {
    v1::Backend& entry = *info.add_backends();
    entry.set_name(backend->name().data(), backend->name().size());
    entry.set_instruction_set(backend->instruction_set());
    entry.set_experimental(backend->experimental());
    entry.set_broken(static_cast<std::string>(backend->health().message()));
    if (const std::optional<BackendCost> cost = engine.CostOf(*backend)) {
      entry.mutable_cost()->set_of_problem(cost->of_problem);
      entry.mutable_cost()->set_of_multiply_add(cost->of_multiply_add);
      entry.mutable_cost()->set_of_byte(cost->of_byte);
    }
    for (const BackendDevice& device : backend->devices()) {
      v1::Device& listed = *info.add_devices();
      listed.set_name(device.name);
      listed.set_memory_bytes(static_cast<uint64_t>(device.memory));
    }
  }
  for (const UnusedBackend& unused : engine.unused()) {
    v1::UnusedBackend& entry = *info.add_unused_backends();
    entry.set_name(unused.name);
    entry.set_reason(static_cast<std::string>(unused.reason.message()));
  }
  info.set_worker_threads(engine.workers().threads());
  const auto bytes = [](int64_t limit) { return static_cast<uint64_t>(limit); };
  v1::Limits& limits = *info.mutable_limits();
  limits.set_max_request_bytes(bytes(options.max_request_bytes));
  limits.set_max_response_bytes(bytes(options.max_response_bytes));
  limits.set_max_requests_in_flight(bytes(options.max_requests_in_flight));
  limits.set_max_bytes_in_flight(bytes(options.memory_limit / 2));
  limits.set_max_stream_requests_in_flight(
      bytes(options.max_stream_requests_in_flight));
}

void FillSequenceStore(const ResidentStore& resident, const std::string& owner,
                       v1::SequenceStore& info) {
  const store::OwnerFigures figures = resident.store().FiguresOf(owner);
  info.set_memory_limit(
      static_cast<uint64_t>(resident.store().budget().limit()));
  info.set_held_bytes(static_cast<uint64_t>(figures.bytes));
  info.set_sequences(figures.sequences);
  if (const auto limit = resident.idle_limit()) {
    info.set_idle_limit_ms(ToMs(*limit));
  }
  info.set_incarnation(resident.incarnation());
}

}  // namespace attention::server
