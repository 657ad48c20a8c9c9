# 170 s of CPU in 260 s, most of it the compiler and Debian's packages.  It stops itself before CTest does, and
# cleans up.
if(VX_SERVER)
  vx_script_test(NAME container LABELS container SECONDS 350 TIMEOUT 3600
    COMMAND ${VX_VENV}/bin/python -u tests/deploy/test_container.py
    ENVIRONMENT "VOXEL=${CMAKE_BINARY_DIR}/bin/voxel" "PYTHONDONTWRITEBYTECODE=1")
endif()
