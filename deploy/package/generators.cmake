# What differs between the packages: a .deb has paths of the system, and a part for each package; the .tar.gz is what
# `cmake --install` installs, under any prefix.
#
# SPDX-License-Identifier: Apache-2.0
if(CPACK_GENERATOR STREQUAL "DEB")
  set(CPACK_SET_DESTDIR ON)
  set(CPACK_INSTALL_PREFIX /usr)
else()
  set(CPACK_MONOLITHIC_INSTALL ON)
endif()
