# Whether the backend `cuda` gets its plugin, libattention_cuda.so: sets ATTENTION_HAS_CUDA. Only
# the plugin is compiled by nvcc and links CUDA's libraries; everything else knows neither.
set(ATTENTION_CUDA AUTO CACHE STRING
    "Build the CUDA plugin: AUTO (where nvcc of CUDA 12 or newer is found), ON or OFF")
set_property(CACHE ATTENTION_CUDA PROPERTY STRINGS AUTO ON OFF)
# Machine code for A100 and H100; every other device of compute capability 8.0 or newer compiles the
# PTX of the newest one it can read, at the first start.
set(ATTENTION_CUDA_ARCHITECTURES "80-real;90" CACHE STRING
    "What the CUDA kernels are compiled for, as in CMAKE_CUDA_ARCHITECTURES")
set(ATTENTION_HAS_CUDA OFF)
if(NOT ATTENTION_CUDA MATCHES "^(AUTO|ON|OFF)$")
  message(FATAL_ERROR "ATTENTION_CUDA: '${ATTENTION_CUDA}' (expected AUTO, ON or OFF)")
endif()
set(ATTENTION_WHY_NO_CUDA "")  # what the server says of it; empty where it has the plugin
if(ATTENTION_CUDA STREQUAL "OFF")
  set(ATTENTION_WHY_NO_CUDA "ATTENTION_CUDA=OFF")
  return()
endif()

# Ends the configuration where CUDA was asked for, and says what is missing otherwise.
function(attention_no_cuda reason)
  if(ATTENTION_CUDA STREQUAL "ON")
    message(FATAL_ERROR "ATTENTION_CUDA=ON: ${reason}. Install the CUDA toolkit 12 or newer (nvcc "
            "and cuBLAS), name its nvcc with -DCMAKE_CUDA_COMPILER=PATH or the environment "
            "variable CUDACXX, or configure with -DATTENTION_CUDA=OFF.")
  endif()
  message(STATUS "CUDA plugin: left out, ${reason}")
  set(ATTENTION_WHY_NO_CUDA "${reason}" PARENT_SCOPE)
endfunction()

if(NOT CMAKE_CUDA_COMPILER)
  find_program(CMAKE_CUDA_COMPILER nvcc
    HINTS $ENV{CUDACXX} ENV CUDA_HOME ENV CUDA_PATH
          ${PROJECT_SOURCE_DIR}/build/cuda/toolkit /usr/local/cuda  # the first is deploy/setup-cuda's
    PATH_SUFFIXES bin NO_CACHE)
  if(DEFINED ENV{CUDACXX} AND EXISTS "$ENV{CUDACXX}")
    set(CMAKE_CUDA_COMPILER "$ENV{CUDACXX}")
  endif()
endif()
if(NOT CMAKE_CUDA_COMPILER)
  unset(CMAKE_CUDA_COMPILER)
  attention_no_cuda("nvcc is not found")
  return()
endif()
execute_process(COMMAND ${CMAKE_CUDA_COMPILER} --version
                OUTPUT_VARIABLE nvcc_says ERROR_QUIET RESULT_VARIABLE nvcc_failed)
if(nvcc_failed OR NOT nvcc_says MATCHES "release ([0-9]+)\\.[0-9]+")
  attention_no_cuda("${CMAKE_CUDA_COMPILER} --version does not say what it is")
  unset(CMAKE_CUDA_COMPILER)
  return()
endif()
if(CMAKE_MATCH_1 LESS 12)
  attention_no_cuda("${CMAKE_CUDA_COMPILER} is of CUDA ${CMAKE_MATCH_1}")
  unset(CMAKE_CUDA_COMPILER)
  return()
endif()

set(CMAKE_CUDA_ARCHITECTURES ${ATTENTION_CUDA_ARCHITECTURES})
if(CCACHE_PROGRAM AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${ccache_launcher})
endif()
enable_language(CUDA)
# CMake 3.25 does not know that nvcc has C++20.
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_STANDARD 20)
# CMake 3.25 as Debian 12 has it wants to say something about a library that CUDA 13 has no more.
if(NOT TARGET CUDA::nvToolsExt)
  add_library(CUDA::nvToolsExt INTERFACE IMPORTED)
endif()
find_package(CUDAToolkit QUIET)
if(NOT TARGET CUDA::cublas)
  attention_no_cuda("cuBLAS is not beside ${CMAKE_CUDA_COMPILER}")
  return()
endif()
set(ATTENTION_HAS_CUDA ON)
message(STATUS "CUDA plugin: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures "
               "${CMAKE_CUDA_ARCHITECTURES}")

# CUTLASS has headers for Hopper's own instructions, of which attend_wgmma is made.
set(ATTENTION_CUDA_CUTLASS AUTO CACHE STRING
    "Build attend_wgmma: AUTO (where CUTLASS 4 is found), ON or OFF")
set_property(CACHE ATTENTION_CUDA_CUTLASS PROPERTY STRINGS AUTO ON OFF)
set(ATTENTION_HAS_CUTLASS OFF)
if(ATTENTION_CUDA_CUTLASS STREQUAL "OFF")
  return()
endif()
find_path(ATTENTION_CUTLASS examples/88_hopper_fmha/kernel/fmha_kernel_tma_warpspecialized.hpp
  HINTS ENV CUTLASS_HOME ${PROJECT_SOURCE_DIR}/build/cuda/cutlass  # the last is deploy/setup-cutlass's
  NO_CACHE NO_DEFAULT_PATH)
if(ATTENTION_CUTLASS)
  set(ATTENTION_HAS_CUTLASS ON)
  message(STATUS "CUDA plugin: with CUTLASS in ${ATTENTION_CUTLASS}, for Hopper")
elseif(ATTENTION_CUDA_CUTLASS STREQUAL "ON")
  message(FATAL_ERROR "ATTENTION_CUDA_CUTLASS=ON: CUTLASS is not found. Run deploy/setup-cutlass, or "
          "name a checkout of CUTLASS 4 with the environment variable CUTLASS_HOME.")
else()
  message(STATUS "CUDA plugin: without CUTLASS; deploy/setup-cutlass gets it, for Hopper's kernels")
endif()
