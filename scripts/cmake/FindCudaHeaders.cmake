# Headers of the CUDA toolkit (cuda.h, cupti.h, NVTX 3) and of NCCL: all that the build needs of them.
#
# Looked for in CUDAToolkit_ROOT (CMake or environment), CUDA_HOME, CUDA_PATH, /usr/local/cuda*, the folder of nvcc,
# and the folders of pip's wheels (nvidia/cu13, nvidia/cuda_runtime, nvidia/cuda_cupti, nvidia/nvtx, nvidia/nccl).
# Defines: target Cuda::Headers, CUDA_HEADERS_DIR (where cuda.h is), CUDA_LIBRARY_DIR (where the real libraries are, or empty).

set(_roots ${CUDAToolkit_ROOT} $ENV{CUDAToolkit_ROOT} $ENV{CUDA_HOME} $ENV{CUDA_PATH} /usr/local/cuda)
file(GLOB _versioned /usr/local/cuda-*)
list(SORT _versioned ORDER DESCENDING)
list(APPEND _roots ${_versioned})
find_program(_nvcc nvcc)
if(_nvcc)
  file(REAL_PATH ${_nvcc} _nvcc_real)
  cmake_path(GET _nvcc_real PARENT_PATH _nvcc_bin)
  cmake_path(GET _nvcc_bin PARENT_PATH _nvcc_root)
  list(APPEND _roots ${_nvcc_root})
endif()
file(GLOB _site_packages /usr/lib/python3*/site-packages /usr/lib/python3/dist-packages /usr/local/lib/python3*/site-packages
  /usr/local/lib/python3*/dist-packages $ENV{VIRTUAL_ENV}/lib/python3*/site-packages $ENV{HOME}/.local/lib/python3*/site-packages)
set(_wheel_roots)
foreach(_site IN LISTS _site_packages)
  foreach(_wheel cu13 cuda_runtime cuda_cupti nvtx nccl)
    list(APPEND _wheel_roots ${_site}/nvidia/${_wheel})
  endforeach()
endforeach()

set(_candidates)
foreach(_root IN LISTS _roots _wheel_roots)
  list(APPEND _candidates ${_root}/include ${_root}/extras/CUPTI/include ${_root}/targets/x86_64-linux/include)
endforeach()
list(REMOVE_DUPLICATES _candidates)

set(_dirs)
set(_missing)
foreach(_header cuda.h cupti.h nvtx3/nvToolsExt.h nccl.h)
  string(MAKE_C_IDENTIFIER "CUDA_HEADERS_${_header}_DIR" _var)
  find_path(${_var} ${_header} PATHS ${_candidates} NO_DEFAULT_PATH)
  if(NOT ${_var})
    find_path(${_var} ${_header})  # NCCL may come from the distribution
  endif()
  mark_as_advanced(${_var})
  if(${_var})
    list(APPEND _dirs ${${_var}})
  else()
    list(APPEND _missing ${_header})
  endif()
endforeach()

if(_missing)
  list(JOIN _missing ", " _missing_text)
  list(JOIN _candidates "\n  " _where)
  message(FATAL_ERROR "gpuprobe: the CUDA toolkit's headers are missing: ${_missing_text}.\n"
    "Looked in:\n  ${_where}\nRemedy: install the CUDA toolkit (11.8 to 13.x, with CUPTI) and NCCL's headers, "
    "or name their place with -DCUDAToolkit_ROOT=DIR or the environment variable CUDAToolkit_ROOT.")
endif()

list(REMOVE_DUPLICATES _dirs)
set(CUDA_HEADERS_DIR ${CUDA_HEADERS_cuda_h_DIR})
find_file(_cupti_library NAMES libcupti.so.13 libcupti.so.12 PATHS ${CUDA_HEADERS_DIR}/.. ${CUDA_HEADERS_cupti_h_DIR}/..
  PATH_SUFFIXES lib lib64 extras/CUPTI/lib64 NO_DEFAULT_PATH NO_CACHE)
if(_cupti_library)
  cmake_path(GET _cupti_library PARENT_PATH CUDA_LIBRARY_DIR)
endif()
if(NOT TARGET Cuda::Headers)
  add_library(Cuda::Headers INTERFACE IMPORTED GLOBAL)
  target_include_directories(Cuda::Headers SYSTEM INTERFACE ${_dirs})
endif()
message(STATUS "CUDA headers: ${_dirs}")
