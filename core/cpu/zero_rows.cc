#include "core/cpu/zero_rows.h"

#include <cstring>
#include <variant>

namespace attention::cpu {
namespace {

// Of `count` floating-point numbers as wide as Bits, `stride` bytes apart; one
// kind of zero is as good as the other.
template <typename Bits>
bool AllZero(const std::byte* elements, int64_t stride, int64_t count) {
  Bits any = 0;
  const auto look = [&any](const std::byte* address) {
    Bits bits;
    std::memcpy(&bits, address, sizeof bits);
    any |= bits;
  };
  // With a stride that the compiler knows it takes vectors.
  if (stride == int64_t{sizeof(Bits)}) {
    for (int64_t i = 0; i < count; ++i) look(elements + i * sizeof(Bits));
  } else {
    for (int64_t i = 0; i < count; ++i) look(elements + i * stride);
  }
  return static_cast<Bits>(any << 1) == 0;
}

}  // namespace

ZeroRows::ZeroRows(const ValidatedProblem& problem)
    : problem_(problem),
      possible_(!problem.attend_mask && !problem.bias &&
                problem.dropout.p == 0) {}

bool ZeroRows::Holds(int64_t batch, RowId row) const {
  if (!possible_) return false;
  const std::byte* const query =
      problem_.query.At(batch, row.head, row.query, 0);
  const int64_t stride = problem_.query.strides[3];
  return problem_.query.type == DataType::kFloat32
             ? AllZero<uint32_t>(query, stride, problem_.query_width)
             : AllZero<uint16_t>(query, stride, problem_.query_width);
}

ZeroRows::Keys ZeroRows::KeysOf(int64_t batch, RowId row) const {
  const bool own_parameters =
      std::holds_alternative<Additive>(problem_.scoring) ||
      std::holds_alternative<Bilinear>(problem_.scoring);
  const KeyRange range = KeysInRange(problem_, batch, row.query);
  return {batch, problem_.KvHead(row.head), own_parameters ? row.head : 0,
          range.begin, range.end};
}

std::optional<RowId> ZeroRows::Find(const Keys& keys) const {
  const std::lock_guard lock(mutex_);
  const auto found = stored_.find(keys);
  if (found == stored_.end()) return std::nullopt;
  return found->second;
}

void ZeroRows::Add(const Keys& keys, RowId row) {
  const std::lock_guard lock(mutex_);
  stored_.emplace(keys, row);
}

}  // namespace attention::cpu
