# The C library and the program `voxel`.
if(VX_SERVER)
  vx_unit_test(NAME test_client_wire SOURCES tests/unit/test_client_wire.c LIBS voxelclient wire)
  vx_unit_test(NAME test_client_limits SOURCES tests/unit/test_client_limits.c LIBS voxelclient)
  vx_unit_test(NAME test_client_geometry SOURCES tests/unit/test_client_geometry.c
    LIBS voxelclient wire)
  vx_unit_test(NAME test_client_info SOURCES tests/unit/test_client_info.c LIBS voxelclient wire)
  vx_unit_test(NAME test_client_call SOURCES tests/unit/test_client_call.c LIBS voxelclient)
  vx_unit_test(NAME test_client_connect SOURCES tests/unit/test_client_connect.c LIBS voxelclient)
  vx_unit_test(NAME test_client_answer SOURCES tests/unit/test_client_answer.c LIBS voxelclient wire)
  vx_unit_test(NAME test_client_place SOURCES tests/unit/test_client_place.c LIBS voxelclient wire)
  vx_unit_test(NAME test_client_region SOURCES tests/unit/test_client_region.c LIBS voxelclient wire)
  vx_unit_test(NAME test_client_files SOURCES tests/unit/test_client_files.c tests/unit/npy_rig.c
    LIBS voxelcli)
  vx_unit_test(NAME test_client_npz SOURCES tests/unit/test_client_npz.c tests/unit/npy_rig.c
    LIBS voxelcli)
  vx_unit_test(NAME test_client_save SOURCES tests/unit/test_client_save.c LIBS voxelcli)
  vx_unit_test(NAME test_client_ply SOURCES tests/unit/test_client_ply.c LIBS voxelcli)
  vx_unit_test(NAME test_client_samples SOURCES tests/unit/test_client_samples.c LIBS voxelcli)
  vx_unit_test(NAME test_voxelize SOURCES tests/unit/test_voxelize.c LIBS voxelcli)
  vx_unit_test(NAME test_perf_write SOURCES tests/unit/test_perf_write.c LIBS voxelcli)
  vx_unit_test(NAME test_client_render SOURCES tests/unit/test_client_render.c LIBS voxelcli)
endif()
