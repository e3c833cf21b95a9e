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
# sloppiness. A container has no locale: what this machine has compiled serves its build all the same.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(ccache_launcher env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=true
      CCACHE_DEPEND=true CCACHE_SLOPPINESS=pch_defines,time_macros,locale ${CCACHE_PROGRAM})
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

# What makes a fault harder to use: guards of return addresses, checked copies, tables of functions
# that are read-only once the program runs, code at a random address. For all targets but those of
# attention_computes(): who shares precompiled headers must not differ. The sanitizers look closer.
set(ATTENTION_UNGUARDED "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND NOT ATTENTION_SANITIZE)
  include(CheckPIESupported)
  check_pie_supported(LANGUAGES CXX)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fstack-protector-strong>)
  # SHELL:, or CMake takes the last option for the first of the kind above, and leaves it out.
  set(ATTENTION_UNGUARDED -fno-stack-protector SHELL:-U_FORTIFY_SOURCE)
  if(NOT CMAKE_BUILD_TYPE STREQUAL "Debug")  # the checks want an optimiser
    add_compile_options("$<$<COMPILE_LANGUAGE:CXX>:-U_FORTIFY_SOURCE;-D_FORTIFY_SOURCE=2>")
  endif()
  add_link_options(LINKER:-z,relro,-z,now)
endif()

if(ATTENTION_SANITIZE)
  add_compile_options(-fsanitize=${ATTENTION_SANITIZE} -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${ATTENTION_SANITIZE})
  if(ATTENTION_SANITIZE MATCHES "undefined")
    add_compile_options(-fno-sanitize-recover=undefined)
  endif()
  # Sanitized programs are large: clang's own linker takes a fifth of the time of GNU's.
  find_program(LLD_PROGRAM ld.lld)
  if(LLD_PROGRAM AND CMAKE_CXX_COMPILER_ID MATCHES "Clang")
    add_link_options(-fuse-ld=lld)
  endif()
endif()
