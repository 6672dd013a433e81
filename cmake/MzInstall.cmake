# What `cmake --install` lays down, and how other projects find it: find_package(mzcache) gives
# mzcache::headers and, where the plugin was built, mzcache_PLUGIN (its path).

include(CMakePackageConfigHelpers)

add_library(mzcache_headers INTERFACE)
set_target_properties(mzcache_headers PROPERTIES EXPORT_NAME headers)
target_include_directories(mzcache_headers INTERFACE "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>"
                           "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
add_library(mzcache::headers ALIAS mzcache_headers)
install(TARGETS mzcache_headers EXPORT mzcache-targets)
install(EXPORT mzcache-targets NAMESPACE mzcache:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/mzcache)

install(FILES CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} RENAME copyright)
install(DIRECTORY include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
if(TARGET ggml-mz)
  install(TARGETS ggml-mz LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
endif()
if(TARGET mzcache)
  install(TARGETS mzcache RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

set(MZ_PLUGIN_FILE "${CMAKE_INSTALL_LIBDIR}/libggml-mz.so")
configure_package_config_file(cmake/mzcache-config.cmake.in "${PROJECT_BINARY_DIR}/mzcache-config.cmake"
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/mzcache
                              PATH_VARS MZ_PLUGIN_FILE)
write_basic_package_version_file("${PROJECT_BINARY_DIR}/mzcache-config-version.cmake" COMPATIBILITY SameMinorVersion)
install(FILES "${PROJECT_BINARY_DIR}/mzcache-config.cmake" "${PROJECT_BINARY_DIR}/mzcache-config-version.cmake"
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/mzcache)

if(PROJECT_IS_TOP_LEVEL)
  set(CPACK_PACKAGE_NAME mzcache)
  set(CPACK_PACKAGE_VENDOR "The mzCache authors")
  set(CPACK_PACKAGE_CONTACT "The mzCache authors <mzcache@localhost>" CACHE STRING "maintainer that a package names")
  set(CPACK_RESOURCE_FILE_LICENSE "${PROJECT_SOURCE_DIR}/LICENSE")
  set(CPACK_GENERATOR DEB)
  set(CPACK_STRIP_FILES ON)

  set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
  set(CPACK_DEBIAN_PACKAGE_SECTION misc)
  set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
  set(CPACK_PRE_BUILD_SCRIPTS "${PROJECT_SOURCE_DIR}/cmake/MzDebian.cmake")
  set(CPACK_PACKAGE_DESCRIPTION "The command mzcache and its documentation, without the plugin: built without llama.cpp.")
  if(MZ_HAVE_LLAMA)
    # Found there when dependencies are looked up; they come from no package.
    set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS "${MZ_LLAMA_DIR}/bin")
    set(CPACK_PACKAGE_DESCRIPTION "\
A plugin for llama.cpp (libggml-mz.so) and the command mzcache. It works with
ggml ${MZ_GGML_VERSION}: mzcache doctor PROGRAM says whether a program has that one.")
  endif()

  # The source archive: the tree without what is made in it and without hidden folders.
  set(CPACK_SOURCE_GENERATOR TGZ)
  set(CPACK_SOURCE_PACKAGE_FILE_NAME "mzcache-${PROJECT_VERSION}")
  set(CPACK_SOURCE_IGNORE_FILES "^${PROJECT_SOURCE_DIR}/(\\\\.[^/]+|build|bench/out)/" "/__pycache__/" "/\\\\.pytest_cache/"
      "/compile_commands\\\\.json$")
  include(CPack)
endif()
