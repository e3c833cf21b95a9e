#ifndef ATTENTION_CORE_REFERENCE_REFERENCE_BACKEND_H_
#define ATTENTION_CORE_REFERENCE_REFERENCE_BACKEND_H_

#include <memory>

#include "core/backend.h"

namespace attention {

/// The oracle: FP64 throughout, direct formulas, loops over tiles with the
/// online softmax. It supports every problem in host memory and is the plain
/// meaning of every option; other backends are held to it. Memory beyond inputs
/// and results does not grow with Lq or Lk: weights are computed in a second
/// sweep over the keys, once the softmax of a row is known.
std::unique_ptr<Backend> MakeReferenceBackend();

}  // namespace attention

#endif  // ATTENTION_CORE_REFERENCE_REFERENCE_BACKEND_H_
