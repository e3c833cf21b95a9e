#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_OUTPUT_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_OUTPUT_H_

#include "client/python-engine/native/arguments.h"
#include "client/python-engine/native/arrays.h"
#include "core/batch.h"
#include "core/tensor_view.h"

namespace attention::python {

/// Where the engine writes a caller's own array `out`. InvalidArgumentError
/// where it is not the output's type and shape, cannot be written to, lies
/// otherwise than the engine writes, or overlaps what is read.
MutableTensorView OutputView(const Array& out, const ValidatedBatch& batch,
                             const Arguments& arguments);

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_OUTPUT_H_
