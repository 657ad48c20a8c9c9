# About 75 s on two cores, most of it Debian's packages.  It stops itself before CTest does, and cleans up.
if(VX_SERVER)
  vx_script_test(NAME container LABELS container SECONDS 80 BUSY
    COMMAND python3 -u tests/deploy/test_container.py
    ENVIRONMENT "VOXEL=${CMAKE_BINARY_DIR}/bin/voxel" "PYTHONDONTWRITEBYTECODE=1")
endif()
