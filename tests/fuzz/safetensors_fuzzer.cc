// Any bytes either are a safetensors file or are refused; what was read reads
// back the same after it was written.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/formats/safetensors.h"
#include "tests/fuzz/expect.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = attention::ParseSafetensors(
      {reinterpret_cast<const std::byte*>(data), size});
  if (!file.ok()) return 0;
  const std::string text = attention::SerializeSafetensors(*file);
  const auto again = attention::ParseSafetensors(
      {reinterpret_cast<const std::byte*>(text.data()), text.size()});
  attention::Expect(again.ok(), "what was written can be read");
  attention::Expect(file->metadata == again->metadata,
                    "the metadata are the same after writing and reading");
  attention::Expect(std::equal(file->tensors.begin(), file->tensors.end(),
                               again->tensors.begin(), again->tensors.end(),
                               [](const auto& a, const auto& b) {
                                 return a.first == b.first &&
                                        attention::SameTensor(a.second,
                                                              b.second);
                               }),
                    "the tensors are the same after writing and reading");
  return 0;
}
