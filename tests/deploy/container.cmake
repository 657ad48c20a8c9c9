# 240 s of CPU beside other work, most of it Debian's packages; what tests/run has compiled before it is not compiled
# again.  It stops itself before CTest does, and cleans up.
if(VX_SERVER)
  vx_script_test(NAME container LABELS container dear SECONDS 350 TIMEOUT 3600
    COMMAND ${VX_VENV}/bin/python -u tests/deploy/test_container.py
    ENVIRONMENT "VOXEL=${CMAKE_BINARY_DIR}/bin/voxel" "PYTHONDONTWRITEBYTECODE=1")
endif()
