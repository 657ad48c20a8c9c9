# The scanner, the codec against an independent implementation, and what reflection returns.
if(VX_SERVER)
  vx_unit_test(NAME test_scan LIBS proto
    SOURCES tests/unit/proto/codec_harness.c)
  vx_unit_test(NAME test_codec_cases LIBS proto
    SOURCES tests/unit/proto/codec_harness.c)
  vx_unit_test(NAME test_codec_parameters LIBS proto
    SOURCES tests/unit/proto/codec_harness.c)
  vx_unit_test(NAME test_codec_random LIBS proto LABELS mixes
    SOURCES tests/unit/proto/codec_harness.c tests/unit/proto/codec_judge.c)
  vx_unit_test(NAME test_codec_typed LIBS proto LABELS mixes
    SOURCES tests/unit/proto/codec_harness.c tests/unit/proto/codec_judge.c tests/unit/proto/typed_writer.c)
  vx_unit_test(NAME test_reply LIBS proto)
  vx_unit_test(NAME test_descriptors LIBS proto)
  vx_fuzz_target(NAME fuzz_codec LIBS proto CORPUS tests/fuzz/corpus/codec
    SOURCES tests/fuzz/fuzz_codec.c tests/unit/proto/codec_harness.c)
endif()
