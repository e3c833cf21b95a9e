#ifndef ATTENTION_TESTS_UNIT_SERVER_TENSOR_TEXT_H_
#define ATTENTION_TESTS_UNIT_SERVER_TENSOR_TEXT_H_

#include <cstddef>
#include <string>

#include "server/wire/tensor_bytes.h"

/// Tensors' bytes as text, so that tests tell them apart.
namespace attention::server {

/// `size` characters that hardly repeat.
inline std::string Text(size_t size) {
  std::string text(size, ' ');
  for (size_t i = 0; i < size; ++i) {
    text[i] = static_cast<char>(i * 7 + i / 256);
  }
  return text;
}

/// Of a tensor that is gathered().
inline std::string ToString(const TensorBytes& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes().data()),
          tensor.bytes().size()};
}

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_TENSOR_TEXT_H_
