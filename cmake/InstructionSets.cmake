# The instruction sets that the cpu kernels are compiled for. Kernels are the same text for vectors of
# every width, and are most of what is compiled in core. Sets ATTENTION_KERNELS_BASELINE (the least of
# x86-64's) and ATTENTION_KERNELS_WITHOUT (those that are left out), in Highway's words.

# attention_processor_has(RESULT FEATURE...): whether this machine's processor has them all, by their
# names in /proc/cpuinfo.
function(attention_processor_has result)
  set(line "")
  if(EXISTS /proc/cpuinfo)
    file(STRINGS /proc/cpuinfo line REGEX "^flags" LIMIT_COUNT 1)
  endif()
  set(${result} TRUE)
  foreach(feature IN LISTS ARGN)
    if(NOT "${line} " MATCHES " ${feature} ")
      set(${result} FALSE)
    endif()
  endforeach()
  set(${result} ${${result}} PARENT_SCOPE)
endfunction()

set(ATTENTION_KERNELS_WITHOUT "")
set(ATTENTION_KERNELS_BASELINE "")
if(CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  set(ATTENTION_KERNELS_BASELINE HWY_SSE4)
endif()
if(NOT ATTENTION_INSTRUCTION_SETS MATCHES "^(all|native)$")
  message(FATAL_ERROR "ATTENTION_INSTRUCTION_SETS is '${ATTENTION_INSTRUCTION_SETS}', not all or native")
endif()
if(ATTENTION_INSTRUCTION_SETS STREQUAL "native" AND CMAKE_SYSTEM_PROCESSOR STREQUAL "x86_64")
  # What Highway asks for.
  attention_processor_has(has_avx2 avx2 fma f16c abm bmi1 bmi2)
  attention_processor_has(has_avx512 avx2 fma f16c abm bmi1 bmi2 avx512f avx512vl avx512dq avx512bw)
  if(has_avx512)
    set(ATTENTION_KERNELS_WITHOUT "HWY_SSE4|HWY_AVX2")
    set(ATTENTION_KERNELS_BASELINE HWY_AVX3)
  elseif(has_avx2)
    set(ATTENTION_KERNELS_WITHOUT "HWY_SSE4|HWY_AVX3|HWY_AVX3_DL")
    set(ATTENTION_KERNELS_BASELINE HWY_AVX2)
  else()
    set(ATTENTION_KERNELS_WITHOUT "HWY_AVX2|HWY_AVX3|HWY_AVX3_DL")
  endif()
endif()
