#include "server/resident/resident_metrics.h"

#include <vector>

namespace attention::server {

void AddResident(const ResidentStore& resident, MetricFamilies& page) {
  page.Gauge("attention_resident_memory_limit_bytes",
             "What sequences may take: --resident-memory-limit.")
      .Add(static_cast<double>(resident.store().budget().limit()));
  std::vector<store::OwnerFigures> owners = resident.store().Figures();
  // So that each family is there before the first sequence is.
  if (owners.empty()) owners.emplace_back();
  const auto add = [&owners](MetricFamilies::Family family,
                             int64_t store::OwnerFigures::*member) {
    for (const store::OwnerFigures& of : owners) {
      family.Add(static_cast<double>(of.*member), {{"owner", of.owner}});
    }
  };
  using Of = store::OwnerFigures;
  add(page.Gauge("attention_resident_bytes", "What sequences take."),
      &Of::bytes);
  add(page.Gauge("attention_resident_pages",
                 "Pages of keys and values; shared ones count once."),
      &Of::pages);
  add(page.Gauge("attention_resident_sequences", "Sequences."), &Of::sequences);
  add(page.Counter("attention_resident_created_total",
                   "Sequences that were made, forks among them."),
      &Of::created);
  add(page.Counter("attention_resident_forks_total",
                   "Sequences that were made from others."),
      &Of::forks);
  add(page.Counter("attention_resident_appended_keys_total",
                   "Keys that were appended."),
      &Of::appended_keys);
  add(page.Counter("attention_resident_deletions_total",
                   "Sequences that were deleted."),
      &Of::deletions);
  add(page.Counter("attention_resident_evictions_total",
                   "Sequences that went to make room: --resident-evict."),
      &Of::evictions);
  add(page.Counter("attention_resident_expirations_total",
                   "Sequences that were not used for too long."),
      &Of::expirations);
}

}  // namespace attention::server
