"""TensorFlow and PyTorch's compiler, Triton, each bring an LLVM. In one process they live side by
side only if Triton's is loaded first; the other way round LLVM ends the process."""

import triton  # noqa: F401
