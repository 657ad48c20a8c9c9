# A scrape of 100 models: its answers must be right; no number is judged.
if(VX_SERVER)
  vx_script_test(NAME bench_scrape LABELS bench SECONDS 5
    COMMAND ${VX_VENV}/bin/python tests/bench/scrape.py --rounds 50
    ENVIRONMENT "VOXELD=${CMAKE_BINARY_DIR}/bin/voxeld" "PYTHONDONTWRITEBYTECODE=1")
endif()
