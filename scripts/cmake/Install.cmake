# `cmake --install build/release` makes build/dist, a tree that works when it is copied elsewhere:
#   bin/gpuprobe            finds lib/libgpuprobe.so beside itself, and its shared libraries by $ORIGIN/../lib
#   lib/                    the injector, and every shared library that the program needs and the libc does not bring
#   samples/                programs to run under the probe
# `cpack --config build/release/CPackConfig.cmake` packs the same tree as a tarball.

if(TARGET gpuprobe_program)
  # DT_RPATH, because a library that is found by DT_RUNPATH does not help to find the libraries that it needs itself.
  set_target_properties(gpuprobe_program PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
  target_link_options(gpuprobe_program PRIVATE -Wl,--disable-new-dtags)
  install(TARGETS gpuprobe_program RUNTIME DESTINATION bin)
  install(CODE "set(GPUPROBE_PROGRAM \"$<TARGET_FILE:gpuprobe_program>\")")
  install(CODE "set(GPUPROBE_STRIP \"${CMAKE_STRIP}\")")
  install(CODE [[
    file(GET_RUNTIME_DEPENDENCIES EXECUTABLES "${GPUPROBE_PROGRAM}" RESOLVED_DEPENDENCIES_VAR _libraries
      UNRESOLVED_DEPENDENCIES_VAR _unresolved
      PRE_EXCLUDE_REGEXES "^ld-linux.*" "^lib(c|m|dl|pthread|rt|resolv)\\.so")
    if(_unresolved)
      message(FATAL_ERROR "gpuprobe: libraries that the program needs were not found: ${_unresolved}")
    endif()
    # Debug information stays in the build tree.
    execute_process(COMMAND "${GPUPROBE_STRIP}" --strip-debug "${CMAKE_INSTALL_PREFIX}/bin/gpuprobe" COMMAND_ERROR_IS_FATAL ANY)
    foreach(_library IN LISTS _libraries)
      file(INSTALL "${_library}" DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" TYPE SHARED_LIBRARY FOLLOW_SYMLINK_CHAIN)
    endforeach()
  ]])
endif()
install(FILES ${CMAKE_SOURCE_DIR}/LICENSE ${CMAKE_SOURCE_DIR}/README.md DESTINATION .)

set(CPACK_GENERATOR TGZ)
set(CPACK_PACKAGE_NAME gpuprobe)
set(CPACK_PACKAGE_VENDOR gpuprobe)
set(CPACK_PACKAGE_FILE_NAME gpuprobe-${PROJECT_VERSION}-${CMAKE_SYSTEM_NAME}-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR})
set(CPACK_STRIP_FILES ON)
set(CPACK_RESOURCE_FILE_LICENSE ${CMAKE_SOURCE_DIR}/LICENSE)
include(CPack)
