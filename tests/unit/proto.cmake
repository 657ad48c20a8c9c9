# The scanner, the codec against an independent judge, and what reflection hands out.
if(VX_SERVER)
  vx_unit_test(NAME test_scan LIBS proto
    SOURCES tests/unit/test_scan.c tests/unit/codec_harness.c)
  vx_unit_test(NAME test_codec_cases LIBS proto
    SOURCES tests/unit/test_codec_cases.c tests/unit/codec_harness.c)
  vx_unit_test(NAME test_codec_parameters LIBS proto
    SOURCES tests/unit/test_codec_parameters.c tests/unit/codec_harness.c)
  vx_unit_test(NAME test_codec_random LIBS proto LABELS mixes
    SOURCES tests/unit/test_codec_random.c tests/unit/codec_harness.c tests/unit/codec_judge.c)
  vx_unit_test(NAME test_reply SOURCES tests/unit/test_reply.c LIBS proto)
  vx_unit_test(NAME test_descriptors SOURCES tests/unit/test_descriptors.c LIBS proto)
  vx_fuzz_target(NAME fuzz_codec LIBS proto CORPUS tests/fuzz/corpus/codec
    SOURCES tests/fuzz/fuzz_codec.c tests/unit/codec_harness.c)
endif()
