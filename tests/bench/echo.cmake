# The lower bound of the daemon's numbers; tests/bench/server_numbers.py and tests/gpu/serve run it.
if(VX_SERVER)
  vx_bench_program(NAME bench_echo SOURCES tests/bench/echo.c LIBS voxelcli voxelclient)
endif()
