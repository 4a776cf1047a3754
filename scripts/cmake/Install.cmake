# `cmake --install build/release` makes build/dist, a tree that works when it is copied elsewhere:
#   bin/gpuprobe            finds lib/libgpuprobe.so beside itself, and its shared libraries by $ORIGIN/../lib
#   libexec/                gpuprobe-simulate, which `gpuprobe simulate` executes; finds libraries in the same way
#   lib/                    the injector, and every shared library that the program needs and the C library does not bring; libstdc++
#                           is linked anew for older C libraries (scripts/cmake/libstdcxx), libgcc_s is the system's
#   share/                  manual pages, and completions for bash and zsh
#   samples/                programs to run under the probe
#   README.md, docs/        with every page that they link to
# All of ours is stripped. `cmake --install build/release --component debug` puts the debug information into bin/.debug, libexec/.debug and
# lib/.debug, where gdb looks for it.
# `cpack --config build/release/CPackConfig.cmake` packs the same tree as a tarball.

if(TARGET gpuprobe_program)
  # DT_RPATH, because a library that is found by DT_RUNPATH does not help to find the libraries that it needs itself.
  foreach(_target gpuprobe_program gpuprobe_simulate_program)
    set_target_properties(${_target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    target_link_options(${_target} PRIVATE -Wl,--disable-new-dtags)
  endforeach()
  install(TARGETS gpuprobe_program RUNTIME DESTINATION bin)
  install(TARGETS gpuprobe_simulate_program RUNTIME DESTINATION libexec)
  install(CODE "set(GPUPROBE_PROGRAM \"$<TARGET_FILE:gpuprobe_program>\")\nset(_simulate \"$<TARGET_FILE:gpuprobe_simulate_program>\")")
  install(CODE [[
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES "${GPUPROBE_PROGRAM}" "${_simulate}" RESOLVED_DEPENDENCIES_VAR _libraries
      UNRESOLVED_DEPENDENCIES_VAR _unresolved
      PRE_EXCLUDE_REGEXES "^ld-linux.*" "^lib(c|m|dl|pthread|rt|resolv|gcc_s)\\.so")
    if(_unresolved)
      message(FATAL_ERROR "gpuprobe: libraries that the program needs were not found: ${_unresolved}")
    endif()
    foreach(_library IN LISTS _libraries)
      file(INSTALL "${_library}" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN)
    endforeach()
  ]])
endif()
# In place of the distribution's libstdc++, which the lines above have brought.
add_subdirectory(${CMAKE_CURRENT_LIST_DIR}/libstdcxx ${CMAKE_BINARY_DIR}/libstdcxx)
if(TARGET gpuprobe_libstdcxx)
  install(TARGETS gpuprobe_libstdcxx LIBRARY DESTINATION lib NAMELINK_SKIP)
endif()

# Manual pages and completions are what the program itself says.
if(TARGET gpuprobe_program)
  install(CODE [[
    function(gpuprobe_help file)
      execute_process(COMMAND "${GPUPROBE_PROGRAM}" help ${ARGN} OUTPUT_VARIABLE _text COMMAND_ERROR_IS_FATAL ANY)
      file(WRITE "${CMAKE_INSTALL_PREFIX}/share/${file}" "${_text}")
      set(_text "${_text}" PARENT_SCOPE)
    endfunction()
    gpuprobe_help(bash-completion/completions/gpuprobe completion-bash)
    gpuprobe_help(zsh/site-functions/_gpuprobe completion-zsh)
    gpuprobe_help(man/man1/gpuprobe.1 --man)
    string(REGEX MATCHALL "BR gpuprobe..[a-z]+" _pages "${_text}")
    foreach(_page IN LISTS _pages)
      string(REGEX REPLACE "BR gpuprobe.." "" _page "${_page}")
      gpuprobe_help(man/man1/gpuprobe-${_page}.1 ${_page} --man)
    endforeach()
  ]])
endif()

# Strips what was installed in FOLDER of the prefix. The link to the debug information holds its checksum, so the debug information is made
# even where nobody asked for it.
function(gpuprobe_split_debug target folder)
  install(CODE "set(_built \"$<TARGET_FILE:${target}>\")\nset(_folder \"${folder}\")\nset(_objcopy \"${CMAKE_OBJCOPY}\")" ALL_COMPONENTS)
  install(CODE [[
    cmake_path(GET _built FILENAME _name)
    set(_installed "${CMAKE_INSTALL_PREFIX}/${_folder}/${_name}")
    execute_process(COMMAND "${_objcopy}" --only-keep-debug --compress-debug-sections "${_built}" "${_installed}.debug" COMMAND_ERROR_IS_FATAL ANY)
    execute_process(COMMAND "${_objcopy}" --strip-unneeded "--add-gnu-debuglink=${_installed}.debug" "${_installed}" COMMAND_ERROR_IS_FATAL ANY)
    file(REMOVE "${_installed}.debug")
  ]])
  install(CODE [[
    cmake_path(GET _built FILENAME _name)
    set(_debug "${CMAKE_INSTALL_PREFIX}/${_folder}/.debug")
    file(MAKE_DIRECTORY "${_debug}")
    execute_process(COMMAND "${_objcopy}" --only-keep-debug --compress-debug-sections "${_built}" "${_debug}/${_name}.debug" COMMAND_ERROR_IS_FATAL ANY)
  ]] COMPONENT debug EXCLUDE_FROM_ALL)
endfunction()
if(TARGET gpuprobe_program)
  gpuprobe_split_debug(gpuprobe_program bin)
  gpuprobe_split_debug(gpuprobe_simulate_program libexec)
endif()
if(TARGET gpuprobe_libstdcxx)
  install(CODE "set(_library \"$<TARGET_FILE_NAME:gpuprobe_libstdcxx>\")\nset(_strip \"${CMAKE_STRIP}\")")
  install(CODE [[
    execute_process(COMMAND "${_strip}" --strip-unneeded "${CMAKE_INSTALL_PREFIX}/lib/${_library}" COMMAND_ERROR_IS_FATAL ANY)
  ]])
endif()
if(TARGET gpuprobe)
  gpuprobe_split_debug(gpuprobe ${CMAKE_INSTALL_LIBDIR})
endif()
install(FILES LICENSE README.md ARCHITECTURE.md CHANGELOG.md CONTRIBUTING.md DESTINATION .)
install(DIRECTORY docs DESTINATION . FILES_MATCHING PATTERN "*.md" PATTERN "*.json" PATTERN "*.png")
install(DIRECTORY samples/prometheus samples/grafana DESTINATION samples)
install(FILES samples/report.png DESTINATION samples)

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME gpuprobe)
set(CPACK_PACKAGE_VENDOR gpuprobe)
set(CPACK_PACKAGE_FILE_NAME gpuprobe-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
include(CPack)
