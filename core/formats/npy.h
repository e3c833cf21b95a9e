#ifndef ATTENTION_CORE_FORMATS_NPY_H_
#define ATTENTION_CORE_FORMATS_NPY_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/tensor.h"

namespace attention {

/// Parses the bytes of a NumPy .npy file, versions 1.0 to 3.0
/// (numpy.lib.format). INVALID_ARGUMENT for anything else: a wrong magic, a
/// header that is not the documented dictionary, big-endian or structured
/// types, Fortran order (said by name), negative or overflowing shapes, a byte
/// count that does not fit.
absl::StatusOr<Tensor> ParseNpy(absl::Span<const std::byte> bytes);

/// The inverse, version 1.0. NumPy has no BF16: INVALID_ARGUMENT for it.
absl::StatusOr<std::string> SerializeNpy(const Tensor& tensor);

/// The same from and to a path; the message of an error begins with the path.
absl::StatusOr<Tensor> ReadNpy(const std::string& path);
absl::Status WriteNpy(const std::string& path, const Tensor& tensor);

}  // namespace attention

#endif  // ATTENTION_CORE_FORMATS_NPY_H_
