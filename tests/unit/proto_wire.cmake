# The scanner and the codec against an independent judge; see proto.cmake for the rest.
if(VX_SERVER)
  vx_unit_test(NAME test_scan LIBS proto
    SOURCES tests/unit/test_scan.c tests/unit/codec_harness.c)
  vx_unit_test(NAME test_codec_cases LIBS proto TIMEOUT 120
    SOURCES tests/unit/test_codec_cases.c tests/unit/codec_harness.c)
  vx_unit_test(NAME test_codec_random LIBS proto TIMEOUT 180
    SOURCES tests/unit/test_codec_random.c tests/unit/codec_harness.c)
  vx_unit_test(NAME test_reply SOURCES tests/unit/test_reply.c LIBS proto)
  vx_fuzz_target(NAME fuzz_codec_cut LIBS proto CORPUS tests/fuzz/corpus/codec
    SOURCES tests/fuzz/fuzz_codec_cut.c tests/unit/codec_harness.c)
endif()
