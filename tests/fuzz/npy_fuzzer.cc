// Any bytes either are a .npy file or are refused; what was read reads back the
// same after it was written.
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/formats/npy.h"
#include "tests/fuzz/expect.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto tensor =
      attention::ParseNpy({reinterpret_cast<const std::byte*>(data), size});
  if (!tensor.ok()) return 0;
  const auto text = attention::SerializeNpy(*tensor);
  attention::Expect(text.ok(), "what was read can be written");
  const auto again = attention::ParseNpy(
      {reinterpret_cast<const std::byte*>(text->data()), text->size()});
  attention::Expect(again.ok(), "what was written can be read");
  attention::Expect(attention::SameTensor(*tensor, *again),
                    "the tensor is the same after writing and reading");
  return 0;
}
