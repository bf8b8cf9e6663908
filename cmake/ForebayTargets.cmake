# forebay_library(<folder> SOURCES ... [DEPS ...])   -> target fb_<folder>
# forebay_test(<name> SOURCES ... [DEPS ...] [LABELS ...])  -> executable <name>, its cases known to ctest
# forebay_fuzzer(<name> SOURCES ... [DEPS ...] CORPUS dir)  -> libFuzzer executable (FOREBAY_FUZZ=ON, clang)

set(FOREBAY_WARNINGS -Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers)
if(FOREBAY_WERROR)
  list(APPEND FOREBAY_WARNINGS -Werror)
endif()
# Results are exact: nobody contracts or reorders floating point outside the kernels' own intrinsics.
add_compile_options(${FOREBAY_WARNINGS} -ffp-contract=off)
# GCC 12's std::string and intrinsics headers raise false -Wrestrict / -Wmaybe-uninitialized reports.
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options(-Wno-restrict -Wno-maybe-uninitialized -Wno-psabi)
endif()

function(forebay_library name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS" ${ARGN})
  add_library(fb_${name} STATIC ${ARG_SOURCES})
  target_include_directories(fb_${name} PUBLIC ${CMAKE_SOURCE_DIR}/src ${CMAKE_SOURCE_DIR}/include)
  # DEPS are public unless they follow the word PRIVATE.
  target_link_libraries(fb_${name} PUBLIC ${ARG_DEPS})
endfunction()

function(forebay_test name)
  cmake_parse_arguments(ARG "" "" "SOURCES;DEPS;LABELS" ${ARGN})
  if(NOT FOREBAY_TESTS)
    return()
  endif()
  list(PREPEND ARG_LABELS unit)
  if(concurrency IN_LIST ARG_LABELS)
    set_property(GLOBAL APPEND PROPERTY FOREBAY_CONCURRENCY_TESTS ${name})
  endif()
  add_executable(${name} ${ARG_SOURCES})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gtest_main GTest::gmock)
  # Tests find committed data by FOREBAY_TEST_DATA, independent of the working directory.
  target_compile_definitions(${name} PRIVATE FOREBAY_TEST_DATA="${CMAKE_SOURCE_DIR}/tests")
  # Discovery evaluates the properties three times, and each time splits a list once more.
  list(JOIN ARG_LABELS [[\\\\\\\;]] labels)
  gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60 NO_PRETTY_VALUES
                       PROPERTIES TIMEOUT 600 LABELS "${labels}")
endfunction()

# A custom target for each set of executables that a check builds alone: fuzzers, concurrency_tests.
function(forebay_add_check_targets)
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
# `std::span<const TYPE> FUNCTION()` of forebay::NAMESPACE as HEADER declares it, with TYPE = {name, text}, sorted by name;
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
