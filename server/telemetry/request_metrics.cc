#include "server/telemetry/request_metrics.h"

#include <algorithm>

namespace attention::server {
namespace {

// More than all backends have; what comes beyond has no name.
constexpr size_t kMostKernels = 64;

size_t IndexOf(Rpc rpc) { return static_cast<size_t>(rpc); }

size_t IndexOf(const absl::Status& status) {
  return static_cast<size_t>(status.code()) % kStatusCodes;
}

// Few, so that comparing them all costs less than hashing one.
RequestMetrics::OfKernel& Find(const RequestFacts& facts,
                               std::vector<RequestMetrics::OfKernel>& kernels) {
  const auto found = std::find_if(kernels.begin(), kernels.end(),
                                  [&](const RequestMetrics::OfKernel& each) {
                                    return each.kernel == facts.kernel &&
                                           each.backend == facts.backend;
                                  });
  if (found != kernels.end()) return *found;
  if (kernels.size() >= kMostKernels) return kernels.back();
  return kernels.emplace_back(
      RequestMetrics::OfKernel{facts.backend, facts.kernel, 0});
}

}  // namespace

void RequestMetrics::NoteArrival(Rpc rpc) {
  arrived_[IndexOf(rpc)].fetch_add(1, std::memory_order_relaxed);
}

void RequestMetrics::Count(const RequestFacts& facts) {
  const std::lock_guard lock(mutex_);
  OfRpc& rpc = counts_.rpcs[IndexOf(facts.rpc)];
  if (IsStream(facts.rpc)) {
    ++rpc.sent;
  } else {
    ++rpc.by_code[IndexOf(facts.status)];
    rpc.time.Observe(WholeTime(facts).count());
  }
  if (facts.rpc == Rpc::kAppend) {
    counts_.appends.Count(facts);
  } else if (facts.rpc == Rpc::kModelInfer ||
             facts.rpc == Rpc::kModelStreamInfer) {
    if (facts.model == nullptr) counts_.no_model.Count(facts);
  } else if (facts.rpc != Rpc::kAttendShards) {
    // The parts of shards are requests of their own.
    const size_t scoring = std::min(facts.scoring, kMostScorings);
    counts_.by_scoring[scoring].Count(facts);
  }
  for (size_t i = 0; i < kMostDataTypes; ++i) {
    counts_.tensors[i] += facts.tensors[i];
  }
  if (facts.refused) {
    const Refusal why = facts.refusal != Refusal::kNone
                            ? facts.refusal
                            : RefusalOf(facts.status);
    ++counts_.refused[static_cast<size_t>(why)];
  } else if (!facts.kernel.empty()) {
    ++Find(facts, counts_.kernels).requests;
  }
}

void RequestMetrics::NoteStream(Rpc rpc) {
  const std::lock_guard lock(mutex_);
  ++counts_.rpcs[IndexOf(rpc)].started;
}

void RequestMetrics::NoteStreamEnd(Rpc rpc, int grpc_code) {
  const std::lock_guard lock(mutex_);
  ++counts_.rpcs[IndexOf(rpc)]
        .by_code[static_cast<size_t>(grpc_code) % kStatusCodes];
}

void RequestMetrics::CountTurnedAway(Rpc rpc, const absl::Status& status) {
  if (IsStream(rpc)) {
    NoteStream(rpc);
    return NoteStreamEnd(rpc, static_cast<int>(status.code()));
  }
  NoteArrival(rpc);
  const std::lock_guard lock(mutex_);
  OfRpc& counts = counts_.rpcs[IndexOf(rpc)];
  ++counts.by_code[IndexOf(status)];
  counts.time.Observe(0);
}

RequestMetrics::Counts RequestMetrics::Read() const {
  Counts counts;
  {
    const std::lock_guard lock(mutex_);
    counts = counts_;
  }
  // Read after what has ended: never fewer.
  for (size_t i = 0; i < kRpcs; ++i) {
    const uint64_t arrived = arrived_[i].load(std::memory_order_relaxed);
    OfRpc& rpc = counts.rpcs[i];
    (IsStream(static_cast<Rpc>(i)) ? rpc.received : rpc.started) = arrived;
  }
  return counts;
}

}  // namespace attention::server
