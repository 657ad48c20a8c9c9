# The rules of the house, and the proof that each rule can fail.
vx_script_test(NAME tidy_self LABELS tidy
  COMMAND python3 tests/tidy/tidy.py --self-test ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
vx_script_test(NAME tidy LABELS tidy SECONDS 12 BUSY
  COMMAND python3 tests/tidy/tidy.py ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")

# clang-tidy with the flags of this very build; a few seconds, because the static analyzer is off.
if(NOT VX_FUZZ AND NOT VX_SANITIZE)
  vx_script_test(NAME lint LABELS tidy SECONDS 60 BUSY
    COMMAND ${CMAKE_CURRENT_LIST_DIR}/lint ${CMAKE_BINARY_DIR} ${CMAKE_SOURCE_DIR})
endif()
