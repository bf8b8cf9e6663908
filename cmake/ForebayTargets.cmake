# forebay_library(<folder> [NO_PCH] [OPTIMIZED] SOURCES ... [DEPS ...])   -> target fb_<folder>
# forebay_test(<name> [SINGLY] [OPTIMIZED] SOURCES ... [DEPS ...] [LABELS ...] [SECONDS ...])  -> executable <name>, its cases known
#                                                      to ctest; those of most SECONDS begin first. OPTIMIZED: its own files take most of its time
# forebay_fuzzer(<name> SOURCES ... [DEPS ...] CORPUS dir)  -> libFuzzer executable (FOREBAY_FUZZ=ON, clang)

set(FOREBAY_WARNINGS -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(FOREBAY_WERROR)
  # These GCC 12 raises falsely about the standard library once sanitizers are on.
  list(APPEND FOREBAY_WARNINGS -Werror)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    foreach(warning array-bounds dangling-pointer free-nonheap-object nonnull stringop-overflow stringop-overread
            use-after-free)
      list(APPEND FOREBAY_WARNINGS -Wno-error=${warning})
    endforeach()
  endif()
endif()
# Results are exact: nobody contracts or reorders floating point outside the kernels' own intrinsics.
add_compile_options(${FOREBAY_WARNINGS} -ffp-contract=off -Wno-psabi)
# Simulated memory has addresses from null on; Clang takes an offset from null for an overflow.
if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang" AND CMAKE_CXX_FLAGS MATCHES "undefined")
  add_compile_options(-fno-sanitize=pointer-overflow)
endif()
# GCC 12's std::string and intrinsics headers raise false -Wrestrict / -Wmaybe-uninitialized reports.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized)
endif()

# The standard headers and fmt are compiled once and shared: they were a third of what a build took. Kernels and files
# with compile options of their own do without (NO_PCH, SKIP_PRECOMPILE_HEADERS). Headers are named in angle brackets,
# because CMake writes a path in quotes out in full, and ccache would miss in every other checkout. The presets turn it on;
# without it a file that lacks an include does not compile.
option(FOREBAY_PCH "Compile the standard headers once" OFF)
set(FOREBAY_PCH_HEADERS <algorithm> <array> <atomic> <charconv> <cmath> <cstdint> <cstring> <deque> <functional> <limits>
    <map> <memory> <mutex> <optional> <set> <span> <string> <string_view> <unordered_map> <utility> <vector> <fmt/core.h>)

# The program and the Python module are made of the same objects. Hidden symbols keep calls among them direct. OFF is for
# bench/pic.py, which measures what it costs.
option(FOREBAY_PIC "Compile the libraries so that the Python module can be made of them" ON)
set(FOREBAY_SHARED_PROPERTIES POSITION_INDEPENDENT_CODE ${FOREBAY_PIC} CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)

# How libraries are compiled whose branches a fuzzer is to see. Kernels read nothing of strangers, and are most of what
# tests run.
if(FOREBAY_FUZZ)
  set(FOREBAY_FUZZED -fsanitize=fuzzer-no-link)
endif()

# The presets compile the files of a library or test as one, since headers and their instances are most of what such a file takes
# (two fifths of a whole build). So a name in an unnamed namespace stands once a library, and once a test that is not compiled
# SINGLY. Files with options of their own stay alone. Who edits one file again and again turns it off:
# cmake --preset release -DFOREBAY_UNITY=OFF.
option(FOREBAY_UNITY "Compile the files of a library or test as one" OFF)
if(FOREBAY_UNITY AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC takes types of unnamed namespaces for types of the file that includes them, and a find() after npos for one.
  add_compile_options(-Wno-subobject-linkage -Wno-stringop-overread)
  # GCC collects its garbage every 128 MB by default: up to a tenth of such a file's time.
  add_compile_options("SHELL:--param ggc-min-heapsize=1000000")
endif()
function(forebay_unity target)
  set_target_properties(${target} PROPERTIES UNITY_BUILD ${FOREBAY_UNITY} UNITY_BUILD_BATCH_SIZE 0)
endfunction()

# With sanitizers a process takes a fifth of a second to start, and there are thousands of tests.
option(FOREBAY_WHOLE_TESTS "CTest starts each executable of tests once, not each test" OFF)

# Tests' own files are half of all that is compiled. Where they are also what takes time, a test is OPTIMIZED.
set(FOREBAY_TEST_FLAGS "" CACHE STRING "Compile options of tests' own files")

# With address sanitizers optimising is half of what a file takes. OPTIMIZED libraries are those whose loops take most of the tests'
# time; no fuzzer watches their branches.
set(FOREBAY_COLD_FLAGS "" CACHE STRING "Compile options of libraries that are not OPTIMIZED")

# Makes the target `name`, whose precompiled header of HEADERS the targets that link DEPS reuse. SHARED: these are
# libraries; else tests.
function(forebay_pch name)
  cmake_parse_arguments(ARG "SHARED" "" "HEADERS;DEPS" ${ARGN})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/${name}.cc CONTENT "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cc)
  target_link_libraries(${name} PRIVATE ${ARG_DEPS})
  target_precompile_headers(${name} PRIVATE ${ARG_HEADERS})
  if(ARG_SHARED)
    set_target_properties(${name} PROPERTIES ${FOREBAY_SHARED_PROPERTIES})
    target_compile_options(${name} PRIVATE ${FOREBAY_COLD_FLAGS} ${FOREBAY_FUZZED})
  else()
    target_compile_options(${name} PRIVATE ${FOREBAY_TEST_FLAGS})
  endif()
endfunction()

function(forebay_library name)
  cmake_parse_arguments(ARG "NO_PCH;OPTIMIZED" "" "SOURCES;DEPS" ${ARGN})
  add_library(fb_${name} STATIC ${ARG_SOURCES})
  set_target_properties(fb_${name} PROPERTIES ${FOREBAY_SHARED_PROPERTIES})
  forebay_unity(fb_${name})
  target_include_directories(fb_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  # DEPS are public unless they follow the word PRIVATE.
  target_link_libraries(fb_${name} PUBLIC ${ARG_DEPS})
  if(ARG_OPTIMIZED AND (FOREBAY_COLD_FLAGS OR FOREBAY_FUZZED))
    return()  # a precompiled header and its users must have the same options
  endif()
  target_compile_options(fb_${name} PRIVATE ${FOREBAY_COLD_FLAGS} ${FOREBAY_FUZZED})
  if(FOREBAY_PCH AND NOT ARG_NO_PCH)
    target_precompile_headers(fb_${name} REUSE_FROM forebay_pch)
  endif()
endfunction()

# SECONDS of a core, more or less, that all tests of a long one take: it begins first.
function(forebay_test name)
  cmake_parse_arguments(ARG "SINGLY;OPTIMIZED" "SECONDS" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT FOREBAY_TESTS)
    return()
  endif()
  if(NOT slow IN_LIST ARG_LABELS AND NOT simulated IN_LIST ARG_LABELS)
    set_property(GLOBAL APPEND PROPERTY FOREBAY_QUICK_TESTS ${name})
  endif()
  list(PREPEND ARG_LABELS unit)
  if(concurrency IN_LIST ARG_LABELS)
    set_property(GLOBAL APPEND PROPERTY FOREBAY_CONCURRENCY_TESTS ${name})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  if(NOT ARG_SINGLY)
    forebay_unity(${name})
  endif()
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} test_data GTest::gtest_main GTest::gmock)
  if(ARG_OPTIMIZED)
    target_compile_options(${name} PRIVATE -O1 -fno-sanitize=undefined)
  else()
    target_compile_options(${name} PRIVATE ${FOREBAY_TEST_FLAGS})
    if(FOREBAY_PCH)
      target_precompile_headers(${name} REUSE_FROM forebay_test_pch)
    endif()
  endif()
  if(NOT ARG_SECONDS)
    set(ARG_SECONDS 0)
  endif()
  if(FOREBAY_WHOLE_TESTS)
    add_test(NAME ${name} COMMAND ${name} --gtest_brief=1)
    set_tests_properties(${name} PROPERTIES TIMEOUT 3600 LABELS "${ARG_LABELS}" COST ${ARG_SECONDS})
    return()
  endif()
  # Discovery evaluates the properties three times, and each time splits a list once more.
  list(JOIN ARG_LABELS [[\\\\\\\;]] labels)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
                       PROPERTIES TIMEOUT 600 LABELS "${labels}" COST ${ARG_SECONDS})
endfunction()

# A custom target for each set of executables that a check builds alone: quick_tests, concurrency_tests, fuzzers.
function(forebay_add_check_targets)
  get_property(quick GLOBAL PROPERTY FOREBAY_QUICK_TESTS)
  if(quick)
    add_custom_target(quick_tests DEPENDS ${quick})
    if(NOT FOREBAY_WHOLE_TESTS)
      list(TRANSFORM quick REPLACE "(.+)" "$<TARGET_FILE:\\1>")
      add_test(NAME sanitizers_patterns COMMAND python3 ${CMAKE_SOURCE_DIR}/tests/sanitizers/check_patterns.py ${quick})
    endif()
  endif()
  get_property(concurrent GLOBAL PROPERTY FOREBAY_CONCURRENCY_TESTS)
  if(concurrent)
    add_custom_target(concurrency_tests DEPENDS ${concurrent})
  endif()
  get_property(fuzzers GLOBAL PROPERTY FOREBAY_FUZZERS)
  if(fuzzers)
    string(REPLACE ";" "\n" lines "${fuzzers}")
    file(WRITE ${CMAKE_BINARY_DIR}/fuzzers.txt "${lines}\n")
    list(TRANSFORM fuzzers REPLACE ":.*" "")
    add_custom_target(fuzzers DEPENDS ${fuzzers})
  endif()
endfunction()

# Writes OUTPUT (a source file): texts compiled in, so that the binary needs no path. It defines
# `std::span<const TYPE> FUNCTION()` of forebay::NAMESPACE as HEADER declares it, with TYPE = {name, text}, in the order of the files' names;
# a name is a file's without its last extension.
function(forebay_embed_texts)
  cmake_parse_arguments(ARG "" "OUTPUT;HEADER;NAMESPACE;TYPE;FUNCTION" "FILES" ${ARGN})
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${ARG_FILES})
  list(SORT ARG_FILES)
  set(entries "")
  foreach(path ${ARG_FILES})
    get_filename_component(name ${path} NAME_WLE)
    file(READ ${path} text)
    string(APPEND entries "    {\"${name}\", R\"text(${text})text\"},\n")
  endforeach()
  file(CONFIGURE OUTPUT ${ARG_OUTPUT} @ONLY CONTENT
"#include \"${ARG_HEADER}\"

namespace forebay::${ARG_NAMESPACE} {
namespace {
constexpr ${ARG_TYPE} kTexts[] = {
${entries}};
}  // namespace
std::span<const ${ARG_TYPE}> ${ARG_FUNCTION}() { return kTexts; }
}  // namespace forebay::${ARG_NAMESPACE}
")
endfunction()

function(forebay_fuzzer name)
  cmake_parse_arguments(ARG "" "CORPUS" "SOURCES;DEPS" ${ARGN})
  if(NOT FOREBAY_FUZZ)
    return()
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} -fsanitize=fuzzer)
  set_property(GLOBAL APPEND PROPERTY FOREBAY_FUZZERS "${name}:${ARG_CORPUS}")
endfunction()
