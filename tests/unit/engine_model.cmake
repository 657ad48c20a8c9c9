# Model files, passes, plans, and the engine as a whole.
vx_unit_test(NAME test_json LIBS base)
foreach(name safetensors network network_limits layouts weights_check op_hint fuse plan)
  vx_unit_test(NAME test_${name} LIBS engine
    SOURCES tests/support/model_files.c)
endforeach()
foreach(name engine engine_faults engine_mixes engine_warm weights_source)
  vx_unit_test(NAME test_${name} LIBS engine
    SOURCES tests/support/engine_rig.c tests/support/model_files.c
      tests/support/network_oracle.c)
endforeach()
vx_fuzz_target(NAME fuzz_json LIBS base
  SOURCES tests/fuzz/fuzz_json.c CORPUS tests/fuzz/corpus/json)
vx_fuzz_target(NAME fuzz_network LIBS engine
  SOURCES tests/fuzz/fuzz_network.c CORPUS tests/fuzz/corpus/network)
vx_fuzz_target(NAME fuzz_safetensors LIBS engine
  SOURCES tests/fuzz/fuzz_safetensors.c CORPUS tests/fuzz/corpus/safetensors)
