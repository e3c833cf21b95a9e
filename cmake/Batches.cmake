# Batches: with ATTENTION_UNITY_BUILD, twelve sources are compiled as one, so that headers are read
# and templates made once for all of them.
#
# CMake has unity builds of its own. Their files name sources by absolute paths, so that ccache knows
# nothing of what another checkout, or a container, has compiled.

# attention_batches(TARGET): TARGET's sources in batches, but those with options, definitions or
# SKIP_UNITY_BUILD_INCLUSION, wherever in this folder these are set.
function(attention_batches target)
  if(ATTENTION_UNITY_BUILD)
    cmake_language(EVAL CODE "cmake_language(DEFER CALL attention_make_batches ${target})")
  endif()
endfunction()

function(attention_make_batches target)
  get_target_property(sources ${target} SOURCES)
  get_target_property(batched ${target} ATTENTION_BATCHED)
  set(together "")
  foreach(source IN LISTS sources)
    get_source_file_property(options ${source} COMPILE_OPTIONS)
    get_source_file_property(definitions ${source} COMPILE_DEFINITIONS)
    get_source_file_property(alone ${source} SKIP_UNITY_BUILD_INCLUSION)
    if(source MATCHES "\\.cc$" AND NOT source IN_LIST batched
       AND NOT options AND NOT definitions AND NOT alone)
      list(APPEND together ${source})
    endif()
  endforeach()
  list(LENGTH together count)
  if(count EQUAL 0)
    return()
  endif()
  math(EXPR last "${count} - 1")
  foreach(first RANGE 0 ${last} 12)
    list(SUBLIST together ${first} 12 batch)
    attention_batch(${target} file ${batch})
  endforeach()
endfunction()

# attention_batch(TARGET NAME a.cc ...): these sources of TARGET as one, whose path NAME is set to.
function(attention_batch target name)
  list(LENGTH ARGN count)
  if(count LESS 2)
    set(${name} ${ARGN} PARENT_SCOPE)
    return()
  endif()
  set(text "")
  foreach(source IN LISTS ARGN)
    cmake_path(ABSOLUTE_PATH source)
    cmake_path(RELATIVE_PATH source BASE_DIRECTORY ${PROJECT_SOURCE_DIR})
    string(APPEND text "#include \"${source}\"\n")
  endforeach()
  list(GET ARGN 0 first)
  cmake_path(GET first STEM first)
  set(file ${CMAKE_CURRENT_BINARY_DIR}/batches/${target}/${first}.cc)
  file(CONFIGURE OUTPUT ${file} CONTENT "${text}" @ONLY)
  set_source_files_properties(${ARGN} PROPERTIES HEADER_FILE_ONLY ON)
  set_property(TARGET ${target} APPEND PROPERTY ATTENTION_BATCHED ${ARGN} ${file})
  target_sources(${target} PRIVATE ${file})
  set(${name} ${file} PARENT_SCOPE)
endfunction()

# attention_runs_once(TARGET a.cc ...): sources of a program's start or of a command, with CLI11's
# templates: to optimise them takes longer than they ever run.
function(attention_runs_once target)
  set(level -O1)
  if(ATTENTION_SANITIZE OR CMAKE_BUILD_TYPE STREQUAL "Debug")
    set(level -O0)
  endif()
  set(files ${ARGN})
  if(ATTENTION_UNITY_BUILD)
    attention_batch(${target} files ${files})
  endif()
  # Precompiled headers were made for another level.
  set_source_files_properties(${files} PROPERTIES
    COMPILE_OPTIONS ${level} SKIP_PRECOMPILE_HEADERS ON)
endfunction()
