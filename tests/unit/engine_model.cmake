# Model files, passes, plans, and the engine as a whole.
vx_unit_test(NAME test_json LIBS base)
vx_unit_test(NAME test_typed LIBS base)
foreach(name safetensors network network_fp8 network_last network_limits network_outputs network_points network_sets
    network_set_limits
    network_predicted blocks layouts two_axes notes weights_check op_hint fuse plan)
  vx_unit_test(NAME test_${name} LIBS engine
    SOURCES tests/support/model_files.c)
endforeach()
vx_unit_test(NAME test_place LIBS engine SOURCES tests/support/unet.c)
vx_unit_test(NAME test_fuse_gather LIBS engine)
vx_unit_test(NAME test_taken LIBS engine)
vx_unit_test(NAME test_fuse_live LIBS engine)
foreach(name engine engine_aside engine_asks engine_dense engine_faults engine_fp8 engine_mixes
    engine_predicted engine_warm weights_source)
  vx_unit_test(NAME test_${name} LIBS engine
    SOURCES tests/support/engine_rig.c tests/support/model_files.c
      ${vx_network_oracle})
endforeach()
# Networks of several levels, thousands of them: one thread, minutes under a sanitizer.
vx_unit_test(NAME test_engine_levels LIBS engine m SECONDS 40 LABELS mixes
  SOURCES tests/support/network_random.c tests/support/network_random_cloud.c
    tests/support/network_random_layers.c tests/support/network_random_levels.c
    tests/support/network_random_points.c tests/support/network_random_predict.c
    tests/support/network_random_text.c tests/support/gpu_rig.c tests/support/engine_rig.c
    tests/support/model_files.c
    ${vx_network_oracle})
vx_unit_test(NAME test_network_grammar LIBS engine m
  SOURCES tests/support/network_random.c tests/support/network_random_cloud.c
    tests/support/network_random_layers.c tests/support/network_random_levels.c
    tests/support/network_random_points.c tests/support/network_random_predict.c
    tests/support/network_random_text.c tests/support/model_files.c)
vx_unit_test(NAME test_engine_levels_by_hand LIBS engine m
  SOURCES tests/support/levels_by_hand.c tests/support/engine_rig.c tests/support/model_files.c
    ${vx_network_oracle})
vx_fuzz_target(NAME fuzz_json LIBS base
  SOURCES tests/fuzz/fuzz_json.c CORPUS tests/fuzz/corpus/json)
file(GLOB vx_network_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/engine/network/*.c ${CMAKE_SOURCE_DIR}/engine/plan/*.c)
vx_fuzz_target(NAME fuzz_network SOURCES tests/fuzz/fuzz_network.c ${vx_network_files} LIBS base m CORPUS tests/fuzz/corpus/network)
vx_fuzz_target(NAME fuzz_safetensors LIBS base SOURCES tests/fuzz/fuzz_safetensors.c engine/weights/foreign_file.c
  engine/weights/safetensors.c engine/weights/source.c CORPUS tests/fuzz/corpus/safetensors)
