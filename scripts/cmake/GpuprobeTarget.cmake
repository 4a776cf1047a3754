# What every target of ours is built with: warnings as errors, and the sanitizers of the preset.
#
# gpuprobe_target(TARGET [WALLED])      apply to a library or program; one that is walled says itself which folders it can include from
# gpuprobe_precompile(TARGET HEADERS..)  headers that most sources of a target include: compiled once
# gpuprobe_compile_together(TARGET [SOURCES n])  compiles up to n (22) sources of a target as one, where the preset wants that
# gpuprobe_test(NAME SOURCES.. LIBS.. [PRECOMPILED HEADERS])  a GoogleTest program, one ctest test per TEST, with a time limit; SANITIZER_OPTIONS for presets
#     asan-ubsan and tsan
# gpuprobe_benchmark(NAME SOURCES.. LIBS..)  a Google Benchmark program (preset bench)

# The cache is the same for every checkout: paths below the tree are hashed relative to the build folder, and debug information starts at the tree.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(_launcher ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros,include_file_mtime,include_file_ctime
    ${CMAKE_CURRENT_LIST_DIR}/ccache.sh ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${_launcher})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${_launcher})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${_launcher})
endif()

# GCC looks for garbage whenever its heap has grown past 128 MiB; up to 1 GiB it is faster to leave it there.
add_compile_options("$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:SHELL:--param ggc-min-heapsize=1000000>")

set(GPUPROBE_ROOT ${CMAKE_CURRENT_LIST_DIR}/../..)
cmake_path(NORMAL_PATH GPUPROBE_ROOT)

# The sanitizers of the preset. gpuprobe_target applies them; a program that nvcc links asks for them itself.
function(gpuprobe_sanitize target)
  if(GPUPROBE_SANITIZE)
    target_compile_options(${target} PRIVATE -fsanitize=${GPUPROBE_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
      # GCC loses track of what is initialised in instrumented code (std::optional, <regex>); builds without sanitizers still warn.
      $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-maybe-uninitialized>)
    target_link_options(${target} PRIVATE -fsanitize=${GPUPROBE_SANITIZE})
  endif()
endfunction()

function(gpuprobe_target target)
  target_compile_options(${target} PRIVATE
    $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Werror>
    # GCC 12 reports overlapping copies inside std::string at -O2 where there are none (GCC bug 105651).
    $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>,$<VERSION_LESS:$<CXX_COMPILER_VERSION>,13>>:-Wno-restrict>
    $<$<COMPILE_LANGUAGE:C>:-Wall -Wextra -Werror>)
  if(NOT "WALLED" IN_LIST ARGN)
    target_include_directories(${target} PRIVATE ${GPUPROBE_ROOT})
  endif()
  gpuprobe_sanitize(${target})
  if(GPUPROBE_BUILD_FUZZERS)  # libFuzzer follows what each input reaches
    target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
  endif()
endfunction()

# A source still includes what it uses: presets other than `release` and `bench` compile without precompiled headers, and so does clang-tidy.
function(gpuprobe_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  _gpuprobe_precompiled_options(${target})
endfunction()

# gpuprobe_precompiled(TARGET OTHER): the headers that gpuprobe_precompile gave to another target with the same options.
function(gpuprobe_precompiled target other)
  target_precompile_headers(${target} REUSE_FROM ${other})
  _gpuprobe_precompiled_options(${target})
endfunction()

# -fpch-preprocess is for ccache. GCC 12 forgets that headers which it precompiled are the system's, and warns about std::string in them; presets
# without precompiled headers check our own arrays.
function(_gpuprobe_precompiled_options target)
  if(NOT CMAKE_DISABLE_PRECOMPILE_HEADERS)
    target_compile_options(${target} PRIVATE $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-fpch-preprocess;-Wno-array-bounds;-Wno-stringop-overflow>)
  endif()
endfunction()

# Most of the time of a compilation goes into headers. The presets that build everything compile several sources as one, in the order in which they
# are listed, so names in the anonymous namespaces of one target must differ. `dev` compiles file by file, and so does clang-tidy.
option(GPUPROBE_COMPILE_TOGETHER "several sources in one compilation: faster from scratch" OFF)
function(gpuprobe_compile_together target)
  cmake_parse_arguments(ARG "" "SOURCES" "" ${ARGN})
  get_target_property(sources ${target} SOURCES)
  list(LENGTH sources count)
  if(GPUPROBE_COMPILE_TOGETHER AND count GREATER 1)
    if(NOT ARG_SOURCES)
      set(ARG_SOURCES 22)
    endif()
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE ${ARG_SOURCES})
  endif()
endfunction()

find_program(GPUPROBE_GOLD ld.gold)
# gpuprobe_test_target(TARGET): what every test program is compiled with. Not optimised, and without debug information outside of `dev`: compiling
# tests takes longer than running them.
function(gpuprobe_test_target target)
  gpuprobe_target(${target})
  if(GPUPROBE_GOLD AND NOT GPUPROBE_SANITIZE)  # links in half the time
    target_link_options(${target} PRIVATE -fuse-ld=gold)
  endif()
  if(NOT GPUPROBE_SANITIZE)
    target_compile_options(${target} PRIVATE -O0 $<$<NOT:$<CONFIG:Debug>>:-g0>)
  endif()
endfunction()

# gpuprobe_test_headers(NAME LIBS.. HEADERS..): precompiled headers for tests that link these libraries; see gpuprobe_test's PRECOMPILED.
function(gpuprobe_test_headers name)
  cmake_parse_arguments(ARG "" "" "LIBS;HEADERS" ${ARGN})
  if(NOT GPUPROBE_BUILD_TESTS)
    return()
  endif()
  find_package(GTest REQUIRED)
  file(GENERATE OUTPUT ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc CONTENT "int main() {}\n")
  add_executable(${name} ${CMAKE_CURRENT_BINARY_DIR}/${name}.cc)  # a program, since what is compiled for a library has other options
  gpuprobe_test_target(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest)
  gpuprobe_precompile(${name} ${ARG_HEADERS})
endfunction()

function(gpuprobe_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;SANITIZER_OPTIONS;PRECOMPILED" "SOURCES;LIBS;LABELS" ${ARGN})
  if(NOT GPUPROBE_BUILD_TESTS)
    return()
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  find_package(GTest REQUIRED)
  include(GoogleTest)
  add_executable(${name} ${ARG_SOURCES})
  gpuprobe_test_target(${name})
  gpuprobe_compile_together(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gmock GTest::gtest_main)
  if(ARG_PRECOMPILED)
    gpuprobe_precompiled(${name} ${ARG_PRECOMPILED})
  endif()
  set(sanitizer ASAN)
  if(GPUPROBE_SANITIZE STREQUAL "thread")
    set(sanitizer TSAN)
  endif()
  # Disabled tests are those that others run, in processes of their own.
  gtest_discover_tests(${name} DISCOVERY_TIMEOUT 60 TEST_FILTER "-*DISABLED_*"
    PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "unit;${ARG_LABELS}" ENVIRONMENT "${sanitizer}_OPTIONS=${ARG_SANITIZER_OPTIONS}")
endfunction()

function(gpuprobe_benchmark name)
  cmake_parse_arguments(ARG "" "" "SOURCES;LIBS" ${ARGN})
  if(NOT GPUPROBE_BUILD_BENCHMARKS)
    return()
  endif()
  find_package(benchmark REQUIRED)
  add_executable(${name} ${ARG_SOURCES})
  gpuprobe_target(${name})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} benchmark::benchmark_main)
  if(NOT TARGET benchmarks)
    add_custom_target(benchmarks)  # all of them: what scripts/bench.sh builds
  endif()
  add_dependencies(benchmarks ${name})
endfunction()
