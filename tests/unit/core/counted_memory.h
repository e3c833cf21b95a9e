#ifndef ATTENTION_TESTS_UNIT_CORE_COUNTED_MEMORY_H_
#define ATTENTION_TESTS_UNIT_CORE_COUNTED_MEMORY_H_

#include <cstdint>

/// What the program allocates, and an allocation that fails. The program is
/// linked so that all of them are seen (-Wl,--wrap=malloc and others).
namespace attention::testing {

/// Bytes that are allocated now, and the most that were since ForgetPeak().
int64_t LiveBytes();
int64_t PeakBytes();
void ForgetPeak();

/// The `call`th new from now on fails, counted from 1; 0: none does.
void FailNewAt(int64_t call);
/// Whether it has come to that.
bool NewHasFailed();

}  // namespace attention::testing

#endif  // ATTENTION_TESTS_UNIT_CORE_COUNTED_MEMORY_H_
