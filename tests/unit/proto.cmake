if(VX_SERVER)
  vx_unit_test(NAME test_codec SOURCES tests/unit/test_codec.c tests/unit/codec_sample.c LIBS proto)
  vx_unit_test(NAME test_codec_damage SOURCES tests/unit/test_codec_damage.c
    tests/unit/codec_sample.c LIBS proto TIMEOUT 120)
  vx_unit_test(NAME test_descriptors SOURCES tests/unit/test_descriptors.c LIBS proto)
  vx_fuzz_target(NAME fuzz_codec SOURCES tests/fuzz/fuzz_codec.c LIBS proto
    CORPUS tests/fuzz/corpus/codec)
endif()
