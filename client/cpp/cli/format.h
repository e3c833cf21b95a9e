#ifndef ATTENTION_CLIENT_CLI_FORMAT_H_
#define ATTENTION_CLIENT_CLI_FORMAT_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "core/tensor.h"

namespace attention::cli {

/// "512 bytes", "1.5 KiB", "256 MiB".
std::string FormatBytes(uint64_t bytes);

/// "850 ns", "12.3 us", "4.56 ms", "1.20 s".
std::string FormatDuration(std::chrono::nanoseconds duration);

/// "[2, 10, 3] FP32".
std::string FormatTensor(const Tensor& tensor);

/// "label         text" and a line end; what the summaries are made of. Text
/// from servers and files is Printable() in it.
std::string Line(absl::string_view label, absl::string_view text);

}  // namespace attention::cli

#endif  // ATTENTION_CLIENT_CLI_FORMAT_H_
