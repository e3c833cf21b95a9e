#ifndef ATTENTION_TESTS_UNIT_CPU_KERNELS_STORED_ROWS_H_
#define ATTENTION_TESTS_UNIT_CPU_KERNELS_STORED_ROWS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/cpu/kernels/bf16/products.h"
#include "tests/support/emulated_products.h"
#include "tests/unit/cpu/kernels/kernel_test.h"

/// Keys and values as they lie in memory, and what multiplies them there.
namespace attention::cpu {

struct NamedInPlace {
  std::string name;
  const Bf16Products* products;
};

/// AMX, where this processor has it, and its emulation.
inline std::vector<NamedInPlace> ProductsInPlace() {
  std::vector<NamedInPlace> all = {{"emulated_amx", &test::EmulatedAmx()}};
  if (AmxProducts() != nullptr) all.push_back({"amx", AmxProducts()});
  return all;
}

/// Rows of elements at odd addresses, each in memory of its own that ends
/// with it, or, `dense`, one after the other: the sanitizers see what is read
/// beside them.
class StoredRows {
 public:
  StoredRows(Element element, int64_t rows, int64_t columns, bool dense)
      : type(element), count(rows), width(columns) {
    const int64_t bytes = columns * SizeOf(type);
    memory_.resize(dense ? 1 : static_cast<size_t>(rows));
    for (auto& piece : memory_) {
      piece.resize(static_cast<size_t>(1 + (dense ? rows : 1) * bytes));
    }
    for (int64_t r = 0; r < rows; ++r) {
      places.push_back(dense ? memory_[0].data() + 1 + r * bytes
                             : memory_[static_cast<size_t>(r)].data() + 1);
    }
  }

  unsigned char* at(int64_t row, int64_t column) {
    return places[static_cast<size_t>(row)] + column * SizeOf(type);
  }
  double value(int64_t row, int64_t column) {
    return LoadElement(type, at(row, column));
  }
  // No other tile is read next.
  Bf16Rows Of(std::vector<const unsigned char*>& to) const {
    to.assign(places.begin(), places.end());
    return {.rows = to.data(),
            .ahead = 0,
            .count = count,
            .type = type,
            .table = nullptr};
  }

  Element type;
  int64_t count;
  int64_t width;
  std::vector<unsigned char*> places;

 private:
  std::vector<std::vector<unsigned char>> memory_;
};

/// Of elements of one byte, most of what they have room for.
inline StoredRows RandomRows(test::Random& random, Element type, int64_t count,
                             int64_t width, bool dense) {
  StoredRows rows(type, count, width, dense);
  for (int64_t r = 0; r < count; ++r) {
    for (int64_t i = 0; i < width; ++i) {
      StoreElement(type, (SizeOf(type) == 1 ? 40 : 1) * random.Normal(),
                   rows.at(r, i));
    }
  }
  return rows;
}

}  // namespace attention::cpu

#endif  // ATTENTION_TESTS_UNIT_CPU_KERNELS_STORED_ROWS_H_
