#include "client/python-engine/native/arrays.h"

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "client/python-engine/native/python.h"
#include "core/shape.h"

namespace attention::python {
namespace {

namespace nb = nanobind;

// Of numpy's documentation, "The array interface protocol": what the capsule
// __array_struct__ points to.
struct ArrayInterface {
  int two;
  int nd;
  char typekind;
  int itemsize;
  int flags;
  Py_ssize_t* shape;
  Py_ssize_t* strides;
  void* data;
  PyObject* descr;
};
constexpr int kNotSwapped = 0x200;
constexpr int kWriteable = 0x400;

// Of a type whose kind and size do not say it all.
std::optional<DataType> ShortType(nb::handle array) {
  const Python& python = GetPython();
  const nb::object type = array.attr("dtype");
  if (type.equal(python.bfloat16)) return DataType::kBFloat16;
  if (type.equal(python.float8)) return DataType::kFloat8;
  return std::nullopt;
}

std::optional<DataType> SignedType(int size) {
  if (size == 1) return DataType::kInt8;
  if (size == 4) return DataType::kInt32;
  if (size == 8) return DataType::kInt64;
  return std::nullopt;
}

// Nothing for a type that no tensor has, or that is not little-endian.
std::optional<DataType> TypeOf(nb::handle array, const ArrayInterface& facts) {
  if ((facts.flags & kNotSwapped) == 0) return std::nullopt;
  switch (facts.typekind) {
    case 'f':
      if (facts.itemsize == 4) return DataType::kFloat32;
      if (facts.itemsize == 2) return DataType::kFloat16;
      return std::nullopt;
    case 'V':  // what ml_dtypes adds
      return ShortType(array);
    case 'i':
      return SignedType(facts.itemsize);
    case 'u':
      if (facts.itemsize == 1) return DataType::kUint8;
      return std::nullopt;
    case 'b':
      return DataType::kBool;
    default:
      return std::nullopt;
  }
}

// Nothing where `value` is no array of numpy's own class with such elements.
std::optional<Array> TryReadArray(nb::handle value) {
  static PyObject* const name = PyUnicode_InternFromString("__array_struct__");
  if (!value.type().is(GetPython().array_type)) return std::nullopt;
  const nb::object capsule = nb::steal(PyObject_GetAttr(value.ptr(), name));
  if (!capsule.is_valid()) throw nb::python_error();
  const auto* const facts = static_cast<const ArrayInterface*>(
      PyCapsule_GetPointer(capsule.ptr(), nullptr));
  if (facts == nullptr) throw nb::python_error();
  const std::optional<DataType> type = TypeOf(value, *facts);
  if (!type) return std::nullopt;
  Array read;
  read.array = nb::borrow(value);
  read.writable = (facts->flags & kWriteable) != 0;
  read.view.type = *type;
  read.view.shape.assign(facts->shape, facts->shape + facts->nd);
  read.view.strides.assign(facts->strides, facts->strides + facts->nd);
  read.view.data = static_cast<std::byte*>(facts->data);
  return read;
}

Array Converted(const nb::object& convert, nb::handle value, const char* name) {
  std::optional<Array> read;
  absl::Status status;
  try {
    read = TryReadArray(convert(value, name));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_MemoryError)) throw;
    status = absl::ResourceExhaustedError(
        absl::StrCat(name, ": no memory to convert it"));
  }
  Check(status);
  if (!read) {
    Check(absl::InternalError(
        absl::StrCat(name, ": was converted to what no tensor is")));
  }
  return *std::move(read);
}

nb::handle NumpyType(DataType type) {
  const Python& python = GetPython();
  switch (type) {
    case DataType::kFloat16:
      return python.float16;
    case DataType::kBFloat16:
      return python.bfloat16;
    case DataType::kInt64:
      return python.int64;
    default:  // results have no others
      return python.float32;
  }
}

}  // namespace

Array ReadArray(nb::handle value, const char* name) {
  if (std::optional<Array> read = TryReadArray(value)) return *std::move(read);
  return ConvertArray(value, name);
}

Array ConvertArray(nb::handle value, const char* name) {
  return Converted(GetPython().to_array, value, name);
}

Array ReadWritableArray(nb::handle value, const char* name) {
  if (std::optional<Array> read = TryReadArray(value)) return *std::move(read);
  return Converted(GetPython().to_writable, value, name);
}

absl::StatusOr<Array> NewArray(const char* name, DataType type,
                               absl::Span<const int64_t> shape) {
  const auto rank = static_cast<Py_ssize_t>(shape.size());
  const nb::object extents = nb::steal(PyTuple_New(rank));
  if (!extents.is_valid()) throw nb::python_error();
  for (Py_ssize_t i = 0; i < rank; ++i) {
    PyObject* const extent = PyLong_FromLongLong(shape[static_cast<size_t>(i)]);
    if (extent == nullptr) throw nb::python_error();
    PyTuple_SetItem(extents.ptr(), i, extent);
  }
  try {
    return *TryReadArray(GetPython().empty(extents, NumpyType(type)));
  } catch (nb::python_error& error) {
    // The system's, and numpy's for more than it counts.
    if (!error.matches(PyExc_MemoryError) && !error.matches(PyExc_ValueError)) {
      throw;
    }
    return absl::ResourceExhaustedError(
        absl::StrCat(name, ": no memory for shape ", ShapeToString(shape)));
  }
}

}  // namespace attention::python
