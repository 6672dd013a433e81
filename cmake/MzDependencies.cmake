# The libraries, as imported targets: PkgConfig::URING XXHASH JANSSON NCURSES CMOCKA,
# and of llama.cpp: mz::ggml-headers (headers only), mz::ggml-base, mz::ggml-cpu, mz::ggml, mz::llama.

find_package(PkgConfig REQUIRED)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson)
pkg_check_modules(NCURSES REQUIRED IMPORTED_TARGET ncursesw)
if(MZ_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
endif()

# Rooms that are built against llama.cpp only.
set(MZ_LLAMA_ROOMS src/engine/cpu src/ggml bench examples)

set(MZ_HAVE_LLAMA OFF)
if(MZ_LLAMA_DIR)
  if(NOT EXISTS "${MZ_LLAMA_DIR}/include/ggml-backend-impl.h")
    message(FATAL_ERROR "MZ_LLAMA_DIR=${MZ_LLAMA_DIR} has no include/ggml-backend-impl.h (scripts/llama.sh prints such a folder)")
  endif()
  set(MZ_HAVE_LLAMA ON)
  add_library(mz_ggml_headers INTERFACE)
  target_include_directories(mz_ggml_headers SYSTEM INTERFACE "${MZ_LLAMA_DIR}/include")
  target_compile_definitions(mz_ggml_headers INTERFACE GGML_SHARED GGML_BACKEND_SHARED)
  add_library(mz::ggml-headers ALIAS mz_ggml_headers)

  # A folder with headers alone is enough to compile: then these libraries are names without a file.
  foreach(lib ggml-base ggml-cpu ggml llama llama-common)
    set(file "${MZ_LLAMA_DIR}/bin/lib${lib}.so")
    if(EXISTS "${file}")
      add_library(mz::${lib} SHARED IMPORTED GLOBAL)
      set_target_properties(mz::${lib} PROPERTIES IMPORTED_LOCATION "${file}")
    else()
      add_library(mz::${lib} INTERFACE IMPORTED GLOBAL)
      message(STATUS "MZ_LLAMA_DIR has no bin/lib${lib}.so: what links to it can be compiled only")
    endif()
    set_target_properties(mz::${lib} PROPERTIES INTERFACE_LINK_LIBRARIES mz_ggml_headers)
  endforeach()
else()
  message(STATUS "MZ_LLAMA_DIR is not set: the plugin, the CPU engine and the bench are left out")
endif()
