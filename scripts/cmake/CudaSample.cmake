# Programs compiled by nvcc. Defines GPUPROBE_HAVE_NVCC, else GPUPROBE_NO_NVCC_REASON.
#
# gpuprobe_cuda_settings(TARGET)                    architectures, warnings, the shared runtime
# gpuprobe_cuda_program(NAME SOURCES.. LIBS..)      a program without an RPATH
include_guard(GLOBAL)

set(GPUPROBE_HAVE_NVCC FALSE CACHE INTERNAL "")
set(_hints ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} ${CUDA_HEADERS_DIR}/.. /usr/local/cuda)
find_program(GPUPROBE_NVCC nvcc HINTS ${_hints} PATH_SUFFIXES bin)
if(NOT GPUPROBE_NVCC)
  list(JOIN _hints ", " _hints_text)
  set(GPUPROBE_NO_NVCC_REASON "nvcc was not found on PATH nor in bin of ${_hints_text}; the end-to-end tests, which run CUDA programs, are left out with them."
    CACHE INTERNAL "")
  return()
endif()

# Every architecture of the list that this nvcc knows, as machine code, and the newest as PTX for devices to come. Devices of 8.6 and 8.9 run
# machine code for 8.0.
execute_process(COMMAND ${GPUPROBE_NVCC} --list-gpu-arch OUTPUT_VARIABLE _known OUTPUT_STRIP_TRAILING_WHITESPACE)
set(_architectures)
foreach(_architecture 75 80 90 100 120)
  if(_known MATCHES "compute_${_architecture}(\n|$)")
    list(APPEND _architectures ${_architecture}-real)
    set(_newest ${_architecture})
  endif()
endforeach()
list(APPEND _architectures ${_newest}-virtual)
set(GPUPROBE_CUDA_ARCHITECTURES ${_architectures} CACHE STRING "GPU architectures that the samples are compiled for")
set(CMAKE_CUDA_ARCHITECTURES ${GPUPROBE_CUDA_ARCHITECTURES})
set(CMAKE_CUDA_COMPILER ${GPUPROBE_NVCC})
if(NOT DEFINED ENV{CUDAHOSTCXX} AND NOT CMAKE_CUDA_HOST_COMPILER)
  set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
endif()
enable_language(CUDA)
set(GPUPROBE_HAVE_NVCC TRUE CACHE INTERNAL "")
# Named explicitly for programs whose own sources have no device code; CMake adds it by itself only to the others.
find_library(GPUPROBE_CUDART_LIBRARY cudart HINTS ${CMAKE_CUDA_IMPLICIT_LINK_DIRECTORIES} ${CUDA_HEADERS_DIR}/../lib64 ${CUDA_HEADERS_DIR}/../lib
  REQUIRED)

find_library(GPUPROBE_NCCL_LIBRARY NAMES nccl libnccl.so.2 HINTS ${CUDA_HEADERS_nccl_h_DIR}/../lib ${CUDA_HEADERS_nccl_h_DIR}/../lib64)

function(gpuprobe_cuda_settings target)
  set_target_properties(${target} PROPERTIES CUDA_STANDARD 17 CUDA_STANDARD_REQUIRED ON CUDA_RUNTIME_LIBRARY Shared
    SKIP_BUILD_RPATH ON CUDA_ARCHITECTURES "${GPUPROBE_CUDA_ARCHITECTURES}")
  target_include_directories(${target} PRIVATE ${GPUPROBE_ROOT})
  target_link_libraries(${target} PRIVATE Cuda::Headers ${CMAKE_DL_LIBS})
  target_compile_options(${target} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wshadow -Werror>
    $<$<COMPILE_LANGUAGE:CUDA>:-O2 -Xcompiler=-Wall,-Wextra,-Werror --Werror=all-warnings --threads=0>)
endfunction()

function(gpuprobe_cuda_program name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  find_package(Threads REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  gpuprobe_cuda_settings(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} ${GPUPROBE_CUDART_LIBRARY} Threads::Threads)
endfunction()
