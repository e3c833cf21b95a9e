#ifndef ATTENTION_CORE_STORE_NAMES_H_
#define ATTENTION_CORE_STORE_NAMES_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace attention::store {

/// Bytes of a name or a label, at most.
inline constexpr size_t kLongestName = 256;

/// A sequence's name: 1 to kLongestName letters, digits and . _ - : + = @ /.
/// INVALID_ARGUMENT, beginning with the field's name, otherwise.
absl::Status CheckName(absl::string_view field, absl::string_view name);
/// Any text of up to kLongestName bytes. INVALID_ARGUMENT otherwise.
absl::Status CheckLabel(absl::string_view label);

/// A name that nobody can guess: 128 random bits as 32 hexadecimal digits.
/// INTERNAL where the system has no random bits.
absl::StatusOr<std::string> MakeName();

/// Why a sequence is no longer there though nobody has deleted it.
enum class Gone : uint8_t { kEvicted, kExpired };

/// The names of sequences that went without being deleted, so that who asks for
/// one is told why; of so many, the last ones. Not safe for several threads.
class GoneNames {
 public:
  explicit GoneNames(size_t most) : most_(most) {}

  void Add(absl::string_view name, Gone why);
  void Forget(absl::string_view name);
  std::optional<Gone> Find(absl::string_view name) const;

 private:
  struct Entry {
    Gone why;
    std::list<std::string>::iterator place;
  };

  const size_t most_;
  std::list<std::string> order_;  // the oldest first
  std::map<std::string, Entry, std::less<>> entries_;
};

/// NOT_FOUND for a sequence that is not there, with the reason where one is
/// known.
absl::Status NotFound(absl::string_view name, std::optional<Gone> why);

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_NAMES_H_
