#ifndef ATTENTION_TESTS_SUPPORT_TEST_DATA_H_
#define ATTENTION_TESTS_SUPPORT_TEST_DATA_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/formats/safetensors.h"

namespace attention::test {

/// The path of a file in tests/data.
std::string TestDataPath(const std::string& name);

/// The names of all files in tests/data that end in ".safetensors", sorted.
std::vector<std::string> SafetensorsInTestData();

/// Reads one of them.
absl::StatusOr<SafetensorsFile> ReadTestData(const std::string& name);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_TEST_DATA_H_
