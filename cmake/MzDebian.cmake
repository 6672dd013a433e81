# Read by CPack when the files of a package are laid out and not packed yet: what Debian's policy wants of them, and what
# `cmake --install` leaves as it is. The man pages are compressed, the changelog is in Debian's form, and lintian is told
# what is meant so.
if(NOT CPACK_GENERATOR STREQUAL "DEB")
  return()
endif()
set(share "${CPACK_TEMPORARY_DIRECTORY}/usr/share")

function(compress)
  execute_process(COMMAND gzip -9n ${ARGN} COMMAND_ERROR_IS_FATAL ANY)
endfunction()

file(GLOB pages "${share}/man/man*/*")
compress(${pages})

# The section of this version as an entry: items of one line each, folded anew, behind stars.
file(READ "${share}/doc/mzcache/CHANGELOG.md" text)
string(REGEX MATCH "\n## ${CPACK_PACKAGE_VERSION}[^\n]*\n\n([^#]*)" section "${text}")
string(STRIP "${CMAKE_MATCH_1}" items)
string(REGEX REPLACE "\n  +" " " items "${items}")
file(WRITE "${CPACK_TEMPORARY_DIRECTORY}.items" "${items}")
execute_process(COMMAND fold -s -w 74 "${CPACK_TEMPORARY_DIRECTORY}.items" OUTPUT_VARIABLE items COMMAND_ERROR_IS_FATAL ANY)
string(REGEX REPLACE " +\n" "\n" items "\n${items}")
string(REGEX REPLACE "\n- " "\n  * " items "${items}")
string(REGEX REPLACE "\n([^ \n])" "\n    \\1" items "${items}")
string(TIMESTAMP date "%a, %d %b %Y %H:%M:%S +0000" UTC)
file(WRITE "${share}/doc/mzcache/changelog"
     "mzcache (${CPACK_PACKAGE_VERSION}) unstable; urgency=medium\n${items}\n\n -- ${CPACK_PACKAGE_CONTACT}  ${date}\n")
compress("${share}/doc/mzcache/changelog")

configure_file("${CMAKE_CURRENT_LIST_DIR}/../packaging/debian/lintian-overrides" "${share}/lintian/overrides/mzcache" COPYONLY)
