#ifndef ATTENTION_SERVER_RESIDENT_RESIDENT_METRICS_H_
#define ATTENTION_SERVER_RESIDENT_RESIDENT_METRICS_H_

#include "server/resident/resident_store.h"
#include "server/telemetry/metric_families.h"

namespace attention::server {

/// What sequences take, and what was done with them, by owner: the name of a
/// caller, or nothing where there are no callers.
void AddResident(const ResidentStore& resident, MetricFamilies& page);

}  // namespace attention::server

#endif  // ATTENTION_SERVER_RESIDENT_RESIDENT_METRICS_H_
