# Networks on the fake GPU.
foreach(name gpu_exec gpu_exec_faults)
  vx_unit_test(NAME test_${name} LIBS engine TIMEOUT 300
    SOURCES tests/unit/test_${name}.c tests/support/gpu_rig.c tests/support/engine_rig.c
      tests/support/model_files.c tests/support/network_oracle.c)
endforeach()
