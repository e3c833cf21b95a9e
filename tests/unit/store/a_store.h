#ifndef ATTENTION_TESTS_UNIT_STORE_A_STORE_H_
#define ATTENTION_TESTS_UNIT_STORE_A_STORE_H_

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/store/page.h"
#include "core/store/store.h"
#include "tests/unit/store/rows.h"

namespace attention::store::testing {

inline constexpr absl::StatusCode kNotFound = absl::StatusCode::kNotFound;
inline constexpr absl::StatusCode kExhausted =
    absl::StatusCode::kResourceExhausted;

/// What a page of SmallForm() counts.
inline int64_t SmallPage() {
  return Page::CountedBytes(int64_t{2} * 64 * (3 + 5) * 4);
}

/// And so many of a sequence, with the table of them.
inline int64_t SmallPages(int64_t count) {
  return count * SmallPage() + PageTable::CountedBytes(count);
}

/// A store with a clock of its own, whose sequences are all of SmallForm().
struct AStore {
  explicit AStore(const StoreOptions& options = {}) : store(options) {}

  /// Gives the name alone: the sequence is not in use.
  absl::StatusOr<std::string> Create(const std::string& owner,
                                     const std::string& name,
                                     const std::string& label = "",
                                     std::optional<Duration> idle_limit = {}) {
    const NewSequence wanted{SmallForm(), name, label, idle_limit};
    auto created = store.Create(owner, wanted, now);
    if (!created.ok()) return created.status();
    return std::move(created->name);
  }
  /// Behind the last key, keys of one tag.
  absl::StatusOr<Appended> Append(const std::string& owner,
                                  const std::string& name, int64_t count,
                                  uint32_t tag) {
    const auto described = store.Describe(owner, name, now);
    if (!described.ok()) return described.status();
    const Rows rows(SmallForm(), described->lengths[0], count, tag);
    return store.Append(owner, name, 0, std::nullopt, rows.block(), now);
  }
  OwnerFigures Figures(const std::string& owner) const {
    for (OwnerFigures& figures : store.Figures()) {
      if (figures.owner == owner) return std::move(figures);
    }
    return {};
  }

  Store store;
  Time now = Time(std::chrono::hours(1));
};

/// Bytes of an empty sequence with a name of one letter.
inline int64_t EmptyBytes() {
  AStore s;
  EXPECT_TRUE(s.Create("", "x").ok());
  return s.store.budget().held();
}

/// A store with room for so many sequences of `pages` pages each.
inline StoreOptions RoomFor(int64_t sequences, int64_t pages, bool evict) {
  return {.memory_limit = sequences * (EmptyBytes() + SmallPages(pages)),
          .evict = evict};
}

}  // namespace attention::store::testing

#endif  // ATTENTION_TESTS_UNIT_STORE_A_STORE_H_
