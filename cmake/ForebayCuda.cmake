# Kernels for GPUs: device code alone (.cu), compiled by nvcc to fat binaries that are embedded in the program, and by the
# C++ compiler for the emulation of the tests (src/kernels/cuda/emulation/).
#
# FOREBAY_CUDA: AUTO compiles the images where there is an nvcc, ON needs one, OFF leaves them out. Without images all else
# is built and tested, and a GPU is refused at run time.
#
# forebay_cuda_image(<source without .cu> ARCH 80|90a [SPILLS] KERNELS <name>...)   one line a source. A kernel that spills
#                                                      registers is an error of nvcc 13.0, but where SPILLS says that some do
# forebay_cuda_registry(<target> <emulation target>)   adds what was declared: to the one the images and their table
#                                                      (kernels/cuda/registry.h), to the other the emulated kernels
set(FOREBAY_CUDA AUTO CACHE STRING "Compile the kernels for GPUs: AUTO, ON or OFF")
set_property(CACHE FOREBAY_CUDA PROPERTY STRINGS AUTO ON OFF)
set(FOREBAY_NVCC "")
if(NOT FOREBAY_CUDA STREQUAL "OFF")
  # tools/setup.sh cuda unpacks PyPI's compiler there.
  find_program(FOREBAY_NVCC_FOUND nvcc HINTS $ENV{CUDA_HOME}/bin ${CMAKE_SOURCE_DIR}/build/cuda/bin)
  if(FOREBAY_NVCC_FOUND)
    execute_process(COMMAND ${FOREBAY_NVCC_FOUND} --version OUTPUT_VARIABLE version ERROR_QUIET)
    string(REGEX MATCH "release ([0-9]+[.][0-9]+)" version "${version}")
    set(FOREBAY_NVCC_VERSION "${CMAKE_MATCH_1}")
    if(FOREBAY_NVCC_VERSION VERSION_GREATER_EQUAL 13)
      set(FOREBAY_NVCC ${FOREBAY_NVCC_FOUND})
    else()
      message(STATUS "cuda: ${FOREBAY_NVCC_FOUND} is older than 13.0 and is not used")
    endif()
  endif()
  if(NOT FOREBAY_NVCC AND FOREBAY_CUDA STREQUAL "ON")
    message(FATAL_ERROR "FOREBAY_CUDA=ON needs nvcc 13.0 or newer in PATH or CUDA_HOME; `tools/setup.sh cuda` fetches one")
  endif()
endif()

# The arithmetic of class `pair`: no contraction, denormals flushed, exact quotients and roots.
set(FOREBAY_NVCC_FLAGS -std=c++20 -O3 -ftz=true -fmad=false -prec-div=true -prec-sqrt=true
    --expt-relaxed-constexpr
    -I ${CMAKE_SOURCE_DIR}/src --threads 0 -Werror all-warnings)
set(FOREBAY_NVCC_90a -gencode arch=compute_90a,code=sm_90a)
# Other GPUs than Hopper's compile the portable kernels from PTX when they are loaded.
set(FOREBAY_NVCC_80 ${FOREBAY_NVCC_90a} -gencode arch=compute_80,code=compute_80)

function(forebay_cuda_image source)
  cmake_parse_arguments(ARG "SPILLS" "ARCH" "KERNELS" ${ARGN})
  string(MAKE_C_IDENTIFIER ${source} image)
  set(file ${CMAKE_CURRENT_SOURCE_DIR}/${source}.cu)
  set_property(DIRECTORY APPEND PROPERTY FOREBAY_CUDA_SOURCES ${file})
  foreach(kernel ${ARG_KERNELS})
    set_property(DIRECTORY APPEND PROPERTY FOREBAY_CUDA_FUNCTIONS ${kernel})
    string(REGEX MATCH "^[0-9]+" least ${ARG_ARCH})
    set_property(DIRECTORY APPEND_STRING PROPERTY FOREBAY_CUDA_ROWS "    FB_CUDA_ROW(${kernel}, ${image}, ${least})\n")
  endforeach()
  if(FOREBAY_NVCC)
    set(fatbin ${CMAKE_CURRENT_BINARY_DIR}/${image}.fatbin)
    set(spills "")
    if(FOREBAY_NVCC_VERSION VERSION_EQUAL 13.0 AND NOT ARG_SPILLS)
      set(spills -Xptxas -warn-spills)
    endif()
    add_custom_command(OUTPUT ${fatbin} DEPENDS ${file} DEPFILE ${fatbin}.d
      COMMAND ${FOREBAY_NVCC} ${FOREBAY_NVCC_FLAGS} ${FOREBAY_NVCC_${ARG_ARCH}} ${spills} -fatbin -MD -MF ${fatbin}.d -o ${fatbin} ${file}
      COMMENT "nvcc ${source}.cu" VERBATIM)
    set_property(DIRECTORY APPEND PROPERTY FOREBAY_CUDA_FATBINS ${fatbin})
    set_property(DIRECTORY APPEND_STRING PROPERTY FOREBAY_CUDA_IMAGES "FB_CUDA_IMAGE(${image}, \"${fatbin}\")\n")
  else()
    set_property(DIRECTORY APPEND_STRING PROPERTY FOREBAY_CUDA_IMAGES "FB_CUDA_NO_IMAGE(${image})\n")
  endif()
endfunction()

function(forebay_cuda_registry target emulation)
  get_property(FOREBAY_CUDA_ROWS DIRECTORY PROPERTY FOREBAY_CUDA_ROWS)
  get_property(FOREBAY_CUDA_IMAGES DIRECTORY PROPERTY FOREBAY_CUDA_IMAGES)
  get_property(fatbins DIRECTORY PROPERTY FOREBAY_CUDA_FATBINS)
  get_property(sources DIRECTORY PROPERTY FOREBAY_CUDA_SOURCES)
  get_property(functions DIRECTORY PROPERTY FOREBAY_CUDA_FUNCTIONS)
  set(registry ${CMAKE_CURRENT_BINARY_DIR}/kernel_table.cc)
  configure_file(kernel_table.cc.in ${registry} @ONLY)
  set_source_files_properties(${registry} PROPERTIES OBJECT_DEPENDS "${fatbins}" SKIP_PRECOMPILE_HEADERS ON
                              SKIP_UNITY_BUILD_INCLUSION ON)
  target_sources(${target} PRIVATE ${registry})
  if(NOT TARGET ${emulation})
    return()
  endif()
  set(FOREBAY_CUDA_DECLARATIONS "")
  set(FOREBAY_CUDA_FUNCTION_ROWS "")
  foreach(function ${functions})
    string(APPEND FOREBAY_CUDA_DECLARATIONS "extern \"C\" void fb_emulated_${function}(const void* params);\nextern \"C\" size_t fb_params_${function}();\n")
    string(APPEND FOREBAY_CUDA_FUNCTION_ROWS "    {\"${function}\", &fb_emulated_${function}, &fb_params_${function}},\n")
  endforeach()
  configure_file(emulated_table.cc.in ${CMAKE_CURRENT_BINARY_DIR}/emulated_table.cc @ONLY)
  target_sources(${emulation} PRIVATE ${CMAKE_CURRENT_BINARY_DIR}/emulated_table.cc ${sources})
  # One rounding an operation, as on the GPU; fused multiply-adds are the CPU's own.
  set_source_files_properties(${sources} PROPERTIES LANGUAGE CXX COMPILE_OPTIONS "-mfma;-Wno-unknown-pragmas"
                              SKIP_PRECOMPILE_HEADERS ON SKIP_UNITY_BUILD_INCLUSION ON)
endfunction()
