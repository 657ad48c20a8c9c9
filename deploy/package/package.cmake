# The packages.  `cmake --build BUILD --target package_files` asks the programs for their man pages and their
# settings; `cpack -G DEB` and `cpack -G TGZ` in the build folder pack.  deploy/release does all of it.
#
# SPDX-License-Identifier: Apache-2.0
include(GNUInstallDirs)
set(VX_MAINTAINER "voxeld developers <voxeld@example.org>" CACHE STRING "Who answers for the packages")
set(vx_package_files ${CMAKE_BINARY_DIR}/package_files)
add_custom_target(package_files
  COMMAND ${CMAKE_COMMAND} -E env "VX_MAINTAINER=${VX_MAINTAINER}"
    ${CMAKE_SOURCE_DIR}/deploy/package/make-files $<TARGET_FILE_DIR:voxeld> ${vx_package_files} ${PROJECT_VERSION}
  DEPENDS voxeld voxel USES_TERMINAL VERBATIM
  COMMENT "Asking the programs for their man pages and settings")

# In every installation: completion, and the man pages once they are made.
foreach(program voxeld voxel)
  install(FILES ${CMAKE_SOURCE_DIR}/deploy/completion/voxel.bash RENAME ${program}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions COMPONENT voxeld)
endforeach()
install(DIRECTORY ${vx_package_files}/man DESTINATION ${CMAKE_INSTALL_DATADIR} COMPONENT voxeld OPTIONAL)

# In the .deb alone: what lies outside the prefix, and what a Debian package must have.
function(vx_install_deb)
  install(${ARGN} COMPONENT voxeld EXCLUDE_FROM_ALL)
endfunction()
install(CODE "if(NOT EXISTS ${vx_package_files}/voxeld.json)
  message(FATAL_ERROR \"build the target package_files first\")\nendif()" COMPONENT voxeld EXCLUDE_FROM_ALL)
vx_install_deb(FILES ${vx_package_files}/voxeld.json DESTINATION /etc/voxeld)
vx_install_deb(FILES ${CMAKE_SOURCE_DIR}/deploy/systemd/voxeld.service
  ${CMAKE_SOURCE_DIR}/deploy/systemd/voxeld.socket ${CMAKE_SOURCE_DIR}/deploy/systemd/voxeld-http.socket
  DESTINATION /lib/systemd/system)
vx_install_deb(FILES ${CMAKE_SOURCE_DIR}/deploy/systemd/voxeld.sysusers RENAME voxeld.conf
  DESTINATION lib/sysusers.d)
vx_install_deb(FILES ${CMAKE_SOURCE_DIR}/deploy/systemd/voxeld.service.d/gpu.conf
  DESTINATION ${CMAKE_INSTALL_DATADIR}/voxeld/voxeld.service.d)
vx_install_deb(DIRECTORY ${CMAKE_SOURCE_DIR}/deploy/demo/repository/
  DESTINATION ${CMAKE_INSTALL_DATADIR}/voxeld/demo)
vx_install_deb(DIRECTORY DESTINATION /var/lib/voxeld/models)
foreach(component voxeld dev)
  set(package voxeld)
  if(component STREQUAL dev)
    set(package libvoxelclient-dev)
  endif()
  install(FILES ${CMAKE_SOURCE_DIR}/deploy/package/copyright ${vx_package_files}/changelog.gz
    ${vx_package_files}/changelog.Debian.gz DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/${package}
    COMPONENT ${component} EXCLUDE_FROM_ALL)
  install(FILES ${CMAKE_SOURCE_DIR}/deploy/package/lintian-overrides RENAME ${package}
    DESTINATION ${CMAKE_INSTALL_DATADIR}/lintian/overrides COMPONENT ${component} EXCLUDE_FROM_ALL)
endforeach()

set(CPACK_PACKAGE_NAME voxeld)
set(CPACK_PACKAGE_VENDOR voxeld)
set(CPACK_SYSTEM_NAME linux-${CMAKE_SYSTEM_PROCESSOR})
set(CPACK_PACKAGE_CONTACT ${VX_MAINTAINER})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PROJECT_CONFIG_FILE ${CMAKE_SOURCE_DIR}/deploy/package/generators.cmake)
set(CPACK_COMPONENTS_ALL voxeld dev)

set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)
set(CPACK_DEBIAN_VOXELD_PACKAGE_NAME voxeld)
set(CPACK_COMPONENT_VOXELD_DESCRIPTION "server of sparse voxel networks
A daemon that serves stacks of submanifold 3-D convolutions, as spconv,
TorchSparse, MinkowskiEngine and FlexGEMM train them, over gRPC (Open
Inference Protocol v2), on CPUs and on GPUs of NVIDIA and AMD.  With voxel, a
client for the command line, and a demo model.")
# OpenBLAS is opened at run time, so no tool sees it.  kill, for reload, is in procps.
set(CPACK_DEBIAN_VOXELD_PACKAGE_DEPENDS
  "procps, systemd | systemd-standalone-sysusers | systemd-sysusers, libopenblas0-pthread | libopenblas0")
set(CPACK_DEBIAN_VOXELD_PACKAGE_CONTROL_EXTRA ${CMAKE_SOURCE_DIR}/deploy/package/conffiles
  ${CMAKE_SOURCE_DIR}/deploy/package/postinst ${CMAKE_SOURCE_DIR}/deploy/package/prerm
  ${CMAKE_SOURCE_DIR}/deploy/package/postrm)
set(CPACK_DEBIAN_VOXELD_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_DEV_PACKAGE_NAME libvoxelclient-dev)
set(CPACK_DEBIAN_DEV_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEV_PACKAGE_DEPENDS "libgrpc-dev")
set(CPACK_COMPONENT_DEV_DESCRIPTION "C library of voxeld's clients
voxel.h and a static library: sends voxels to voxeld, or to any server of the
Open Inference Protocol v2, over gRPC.  With files for pkg-config and CMake.")
include(CPack)
