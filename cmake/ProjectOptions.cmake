# Settings shared by every target of this project, and by none of other people's.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Never compile the same text twice, in whatever checkout it lies. What a file depends on is what
# the compiler says (depend), so that nothing is preprocessed first; precompiled headers need the
# sloppiness.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(ccache_launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true
      CCACHE_DEPEND=true CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  if(NOT CMAKE_CXX_COMPILER_LAUNCHER)
    set(CMAKE_CXX_COMPILER_LAUNCHER ${ccache_launcher})
  endif()
endif()

include(GNUInstallDirs)

# attention_options(TARGET): warnings as errors, include paths from the project's root, sanitizers.
function(attention_options target)
  set(warnings -Wall -Wextra -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wswitch -Werror
      # GCC 12 sees ghosts in the inlined moves of Abseil's InlinedVector, and
      # overlaps in short strings that are assigned (its bug 105651).
      $<$<CXX_COMPILER_ID:GNU>:-Wno-maybe-uninitialized -Wno-restrict>)
  target_compile_options(${target} PRIVATE
    "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:-Werror=all-warnings;-Xcompiler=-Wall,-Wextra>")
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}>)
endfunction()

if(ATTENTION_SANITIZE)
  add_compile_options(-fsanitize=${ATTENTION_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${ATTENTION_SANITIZE})
  if(ATTENTION_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
endif()
