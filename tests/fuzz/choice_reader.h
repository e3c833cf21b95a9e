#ifndef ATTENTION_TESTS_FUZZ_CHOICE_READER_H_
#define ATTENTION_TESTS_FUZZ_CHOICE_READER_H_

#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"

namespace attention::test {

/// Bytes, each a choice; those that are missing are 0.
class ChoiceReader {
 public:
  explicit ChoiceReader(absl::Span<const uint8_t> bytes) : bytes_(bytes) {}

  bool empty() const { return at_ >= bytes_.size(); }
  int64_t Byte() { return empty() ? 0 : bytes_[at_++]; }
  int64_t Word() {
    const int64_t low = Byte();
    return low + 256 * Byte();
  }
  /// Into `extent`, at most `most`, where the next number is not 0.
  void Override(int64_t number, int64_t most, int64_t& extent) {
    if (number != 0) extent = number % (most + 1);
  }
  /// The same for a width, of which the last 25 choices are large ones.
  void OverrideWidth(int64_t most, int64_t& width) {
    const int64_t number = Byte();
    if (number > 230) {
      width = 200 * (number - 230) + number % 3;
    } else {
      Override(number, most, width);
    }
  }
  template <size_t n>
  double Pick(const double (&list)[n], double otherwise) {
    const int64_t choice = Byte();
    return choice == 0 ? otherwise : list[choice % static_cast<int64_t>(n)];
  }

 private:
  absl::Span<const uint8_t> bytes_;
  size_t at_ = 0;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_FUZZ_CHOICE_READER_H_
