# The CPU device, geometry, the references, and the buddy allocator under them.
vx_unit_test(NAME test_access LIBS base)
vx_unit_test(NAME test_buddy LIBS base m
  SOURCES tests/support/voxels.c)
vx_unit_test(NAME test_shares LIBS base m
  SOURCES tests/support/voxels.c)
vx_unit_test(NAME test_coords_ref LIBS base)
vx_unit_test(NAME test_numa LIBS base)
vx_unit_test(NAME test_utf8 LIBS base)
vx_unit_test(NAME test_kernels LIBS kernels base m
  SOURCES tests/support/voxels.c)
foreach(name hash bricks order conv mlp pointwise operators samples)
  vx_unit_test(NAME test_kernels_${name} LIBS kernels base m LABELS mixes
    SOURCES tests/support/kernel_cloud.c tests/support/voxels.c)
endforeach()
foreach(name geometry geometry_bounds geometry_predict geometry_room)
  vx_unit_test(NAME test_${name} LIBS engine
    SOURCES tests/support/geometry_rig.c tests/support/voxels.c)
endforeach()
# One thread keeps what the pool makes, and the pool makes the same kinds of sets and maps in those above.
foreach(name geometry_cache geometry_pack geometry_sets geometry_shares)
  vx_unit_test(NAME test_${name} LIBS engine LABELS long
    SOURCES tests/support/geometry_rig.c tests/support/voxels.c)
endforeach()
vx_unit_test(NAME test_cpu_pool LIBS engine)
vx_unit_test(NAME test_kernels_brick_way LIBS kernels base m
  SOURCES tests/support/voxels.c)
vx_unit_test(NAME test_kernels_sets LIBS kernels base m)
vx_unit_test(NAME test_kernels_dense LIBS kernels base m)
vx_unit_test(NAME test_kernels_fp8 LIBS kernels base m)
vx_unit_test(NAME test_kernels_live LIBS kernels base m)
vx_unit_test(NAME test_kernels_occupancy LIBS kernels base m)
vx_unit_test(NAME test_kernels_strides LIBS kernels base m)
vx_unit_test(NAME test_kernels_tiles LIBS kernels base m)
vx_unit_test(NAME test_kernels_levels LIBS kernels base m
  SOURCES tests/support/level_truth.c tests/support/kernel_cloud.c tests/support/voxels.c)
foreach(name cpu_ops cpu_elements cpu_bits cpu_dense cpu_points cpu_strides)
  vx_unit_test(NAME test_${name} LIBS engine
    SOURCES tests/support/cpu_cases.c tests/support/voxels.c)
endforeach()
vx_unit_test(NAME test_cpu_fp8 LIBS engine m
  SOURCES tests/support/cpu_cases.c tests/support/model_files.c tests/support/voxels.c)
# Many cases on the same pool of threads, which TSan sees in those above.
foreach(name cpu_sets cpu_sets_bits cpu_samples)
  vx_unit_test(NAME test_${name} LIBS engine LABELS long
    SOURCES tests/support/cpu_cases.c tests/support/voxels.c)
endforeach()

# One convolution against numpy on the same cores: the same numbers, and times that nothing is held
# against here (--least does by hand, on a quiet machine). A sanitizer or -O0 measures itself.
vx_bench_program(NAME bench_cpu_conv
  SOURCES tests/bench/bench_cpu_conv.c tests/support/voxels.c LIBS engine)
if(NOT VX_FUZZ AND NOT VX_SANITIZE AND NOT CMAKE_BUILD_TYPE STREQUAL "Debug")
  vx_script_test(NAME bench_cpu LABELS bench SECONDS 12 BUSY
    COMMAND ${VX_VENV}/bin/python tests/bench/cpu_conv.py $<TARGET_FILE:bench_cpu_conv>
    ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
endif()
