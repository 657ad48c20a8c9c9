# VX_COMMIT: which source this is, for --version.  It is read when CMake configures, and only the two files that
# print it are compiled again.  From git; from COMMIT, a file that deploy/release puts into the source archive; or
# -DVX_COMMIT=..., for a build in a container, which has neither.
#
# SPDX-License-Identifier: Apache-2.0
set(VX_COMMIT "" CACHE STRING "The commit that --version names; empty = ask git")
set(vx_commit ${VX_COMMIT})
if(NOT vx_commit AND EXISTS ${CMAKE_SOURCE_DIR}/.git)
  find_package(Git QUIET)
  if(Git_FOUND)
    execute_process(COMMAND ${GIT_EXECUTABLE} describe --always --dirty --abbrev=12 --exclude=*
      WORKING_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE vx_commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  endif()
elseif(NOT vx_commit AND EXISTS ${CMAKE_SOURCE_DIR}/COMMIT)
  file(STRINGS ${CMAKE_SOURCE_DIR}/COMMIT vx_commit LIMIT_COUNT 1)
endif()
if(NOT vx_commit)
  set(vx_commit unknown)
endif()

# vx_commit(file...): these files of the current folder may use VX_COMMIT.
function(vx_commit)
  set_source_files_properties(${ARGN} PROPERTIES COMPILE_DEFINITIONS "VX_COMMIT=\"${vx_commit}\"")
endfunction()
