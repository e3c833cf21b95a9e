#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ARRAYS_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ARRAYS_H_

#include <nanobind/nanobind.h>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/datatype.h"
#include "core/tensor_view.h"

/// numpy's arrays as tensors, and the other way round, without a copy. They are
/// read by __array_struct__, numpy's interface for C: it has the types of
/// ml_dtypes, which the buffer protocol and DLPack do not.
namespace attention::python {

/// An array and what lies in it; the view is good as long as the array.
struct Array {
  nanobind::object array;
  MutableTensorView view;
  bool writable = false;
};

/// `value`, an argument called `name`, of any library or a list: as it is, by
/// its strides, where its elements are those of a tensor; else converted, as
/// the client converts it. Throws InvalidArgumentError where it cannot be.
Array ReadArray(nanobind::handle value, const char* name);

/// The same, converted as the client converts it in any case.
Array ConvertArray(nanobind::handle value, const char* name);

/// The same of an argument that is written to: an array of numpy, or a PyTorch
/// tensor of the host, never a copy.
Array ReadWritableArray(nanobind::handle value, const char* name);

/// An uninitialised array of FP32, FP16, BF16 or INT64. RESOURCE_EXHAUSTED,
/// which begins with `name`, where there is no memory.
absl::StatusOr<Array> NewArray(const char* name, DataType type,
                               absl::Span<const int64_t> shape);

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_ARRAYS_H_
