# How everything is compiled: the language, the warnings, the sanitizers.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS ON)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY "${PROJECT_BINARY_DIR}/bin")
set(THREADS_PREFER_PTHREAD_FLAG ON)
find_package(Threads REQUIRED)

# Asserts guard the invariants of the state machine and cost nothing that can be measured: they
# stay in the usual build. Release leaves them out.
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE RelWithDebInfo CACHE STRING "" FORCE)
endif()
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

add_compile_definitions(_GNU_SOURCE MZ_VERSION="${PROJECT_VERSION}")
if(MZ_TRAP)
  add_compile_definitions(MZ_TRAP=1)
endif()
add_compile_options(-Wall -Wextra -Wconversion -Wshadow -Wstrict-prototypes -Wmissing-prototypes
                    -ffp-contract=off -fno-omit-frame-pointer)
if(MZ_WERROR)
  add_compile_options(-Werror)
endif()
include_directories("${PROJECT_SOURCE_DIR}/include" "${PROJECT_SOURCE_DIR}/src")

set(MZ_TEST_FACTOR 1)
if(MZ_SANITIZE)
  set(MZ_TEST_FACTOR 5)
  add_compile_options(-fsanitize=${MZ_SANITIZE} -fno-sanitize-recover=undefined -O1)
  add_link_options(-fsanitize=${MZ_SANITIZE})
endif()
