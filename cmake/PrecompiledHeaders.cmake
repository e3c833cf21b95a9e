# Other people's headers take longer to read than our files to compile: Abseil's and the standard
# library's 2 s a file, gRPC's and Protobuf's as much again. The compiler reads them once.
#
# What a file needs it includes all the same: tools/tidy reads every file without this.
set(standard_headers
  <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstddef> <cstdint> <cstring>
  <functional> <limits> <map> <memory> <mutex> <optional> <stop_token> <string> <string_view>
  <thread> <tuple> <utility> <variant> <vector>
  <absl/container/inlined_vector.h> <absl/functional/function_ref.h> <absl/status/status.h>
  <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/types/span.h>)
set(grpc_headers
  <google/protobuf/io/coded_stream.h> <google/protobuf/io/zero_copy_stream_impl_lite.h>
  <google/protobuf/message.h> <google/protobuf/wire_format_lite.h> <grpcpp/grpcpp.h>
  <grpcpp/generic/generic_stub.h> <grpcpp/support/server_callback.h>)
set(test_headers <gmock/gmock.h> <gtest/gtest.h>)
# What moves messages gains nothing from -O3 that could be measured; with -O2 a first build takes about
# a tenth less.
# Tests spend their time in what they test, and the compiler half of its time on optimising them. So
# it is with what the sanitizers check of gRPC's users, there two thirds. (The checked copies of
# cmake/ProjectOptions.cmake want an optimiser.)
set(unoptimised -O0 SHELL:-U_FORTIFY_SOURCE)
set(unoptimised_kinds "test")
if(ATTENTION_SANITIZE)
  set(unoptimised_kinds "test|grpc")
endif()

# attention_precompiled(TARGET standard|core|grpc|test|grpc_test): which of the above TARGET reads so,
# the standard ones always. A file with compile options of its own cannot (SKIP_PRECOMPILE_HEADERS).
function(attention_precompiled target kind)
  set(library attention_headers_${kind})
  if(NOT TARGET ${library})
    set(headers ${standard_headers})
    if(kind MATCHES "grpc")
      list(APPEND headers ${grpc_headers})
    endif()
    if(kind MATCHES "test")
      list(APPEND headers ${test_headers})
    endif()
    set(source ${PROJECT_BINARY_DIR}/${library}.cc)
    file(CONFIGURE OUTPUT ${source} CONTENT "")
    add_library(${library} OBJECT ${source})
    target_precompile_headers(${library} PRIVATE ${headers})
    if(kind MATCHES "test")
      target_link_libraries(${library} PRIVATE GTest::gmock)
    endif()
  endif()
  set(level "")
  if(kind MATCHES "${unoptimised_kinds}")
    set(level ${unoptimised})
  elseif(kind STREQUAL "grpc" AND CMAKE_BUILD_TYPE STREQUAL "Release" AND NOT ATTENTION_SANITIZE)
    set(level -O2)
  endif()
  target_compile_options(${library} PRIVATE ${level})
  target_compile_options(${target} PRIVATE ${level})
  target_precompile_headers(${target} REUSE_FROM ${library})
  # It serves compilations with the same macros alone, and some of gRPC's users have -pthread's. And
  # GCC 12 sees ghosts in the copies of short strings (its bug 105329), which it keeps to itself
  # only where headers are not precompiled.
  if(kind MATCHES "grpc")
    target_compile_options(${library} PRIVATE -pthread)
    target_compile_options(${target} PRIVATE -pthread
      $<$<CXX_COMPILER_ID:GNU>:-Wno-array-bounds -Wno-stringop-overflow -Wno-stringop-overread>)
  endif()
endfunction()

# attention_computes(TARGET): without the guards of cmake/ProjectOptions.cmake, and so are the headers
# of kind core, which are TARGET's alone. Guards cost 9 % of a problem that takes 230 ns; the core
# parses nothing, and what it keeps on the stack has lengths that no caller chooses.
function(attention_computes target)
  foreach(unguarded ${target} attention_headers_core)
    target_compile_options(${unguarded} PRIVATE ${ATTENTION_UNGUARDED})
  endforeach()
endfunction()

# A precompiled header is of one kind of code: programs are compiled as libraries are.
set(CMAKE_CXX_COMPILE_OPTIONS_PIE ${CMAKE_CXX_COMPILE_OPTIONS_PIC})
