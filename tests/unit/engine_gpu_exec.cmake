vx_unit_test(NAME test_gpu_pieces LIBS engine LABELS mixes
  SOURCES tests/support/device_rig.c)
vx_unit_test(NAME test_gpu_levels LIBS engine LABELS mixes
  SOURCES tests/support/device_rig.c tests/support/level_truth.c tests/support/voxels.c)
# Orders of rows and lists of pairs.
vx_unit_test(NAME test_gpu_order LIBS engine LABELS mixes
  SOURCES tests/support/device_rig.c tests/support/voxels.c)
vx_unit_test(NAME test_gpu_shares LIBS engine
  SOURCES tests/support/device_rig.c)
# Which tiles a layer may take.
vx_unit_test(NAME test_conv_tiles LIBS engine)
vx_unit_test(NAME test_gpu_conv LIBS engine LABELS mixes
  SOURCES tests/support/device_rig.c tests/support/voxels.c)
# Layers that one kernel of a GPU computes together.
vx_unit_test(NAME test_gpu_mlp LIBS engine)
vx_unit_test(NAME test_gpu_narrow LIBS engine)
# How a round is laid out.
vx_unit_test(NAME test_gpu_places LIBS engine)
# Networks on the fake GPU.
foreach(name gpu_dense gpu_dense_parts gpu_density gpu_exec gpu_exec_faults gpu_fp8 gpu_rounds gpu_sets gpu_shapes gpu_stages)
  vx_unit_test(NAME test_${name} LIBS engine SECONDS 10 BUSY LABELS mixes
    SOURCES tests/support/gpu_rig.c tests/support/engine_rig.c
      tests/support/model_files.c ${vx_network_oracle})
endforeach()
foreach(name IN ITEMS test_gpu_beside test_gpu_concat test_gpu_early)
  set(seconds 10)
  if(name STREQUAL test_gpu_beside) # a minute under TSan, where nothing else ran beside its end
    set(seconds 25)
  endif()
  vx_unit_test(NAME ${name} LIBS engine SECONDS ${seconds} BUSY
    SOURCES tests/support/unet.c tests/support/gpu_rig.c tests/support/engine_rig.c
      tests/support/model_files.c ${vx_network_oracle})
endforeach()
# Maps whose neighbours lie in the order of their rows.
vx_unit_test(NAME test_gpu_neighbours LIBS engine LABELS mixes
  SOURCES tests/support/gpu_rig.c tests/support/engine_rig.c
    tests/support/model_files.c ${vx_network_oracle})
# Requests that kernels read and write where they lie.
vx_unit_test(NAME test_gpu_direct LIBS engine
  SOURCES tests/support/gpu_rig.c tests/support/engine_rig.c
    tests/support/model_files.c ${vx_network_oracle})
vx_unit_test(NAME test_gpu_live LIBS engine SECONDS 10 BUSY LABELS mixes
  SOURCES tests/support/gpu_rig.c tests/support/engine_rig.c
    tests/support/model_files.c ${vx_network_oracle})
vx_unit_test(NAME test_gpu_gather LIBS engine SECONDS 10 BUSY
  SOURCES tests/support/gpu_rig.c tests/support/engine_rig.c
    tests/support/model_files.c ${vx_network_oracle})
# Batches and the geometry store.
foreach(name gpu_batch gpu_batch_faults gpu_brief gpu_foreign)
  vx_unit_test(NAME test_${name} LIBS engine SECONDS 40 BUSY LABELS mixes
    SOURCES tests/support/gpu_mix.c tests/support/gpu_rig.c
      tests/support/engine_rig.c tests/support/model_files.c ${vx_network_oracle})
endforeach()
vx_unit_test(NAME test_gpu_store LIBS engine
  SOURCES tests/support/model_files.c)
# Memory of other processes on the GPU of this machine, if it has one.
vx_unit_test(NAME test_gpu_cuda_foreign LIBS engine LABELS gpu
  SOURCES tests/support/engine_rig.c
    tests/support/model_files.c ${vx_network_oracle})
