# Tuning tables, picks, measuring, and the tools that use them; all on the fake device.
foreach(name tune pick measure)
  vx_unit_test(NAME test_${name} LIBS engine LABELS mixes)
endforeach()
vx_unit_test(NAME test_tune_tools LIBS engine LABELS mixes SOURCES tests/support/model_files.c)
vx_unit_test(NAME test_tune_shipped LIBS engine)
vx_unit_test(NAME test_clouds LIBS engine LABELS mixes)
vx_unit_test(NAME test_bench_cloud LIBS engine LABELS mixes)
vx_unit_test(NAME test_npz_names LIBS engine)
foreach(name record fp8_check)
  vx_unit_test(NAME test_${name} LIBS engine
    SOURCES tests/support/engine_rig.c tests/support/model_files.c ${vx_network_oracle})
endforeach()
vx_unit_test(NAME test_conv_cost LIBS engine)
vx_fuzz_target(NAME fuzz_tune_table SOURCES tests/fuzz/fuzz_tune_table.c engine/tune/table.c engine/tune/density.c
  engine/gpu/conv/conv_order.c LIBS base m CORPUS tests/fuzz/corpus/tune_table)
