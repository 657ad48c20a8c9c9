# The tools that need no server, and a program with only these tools.
target_sources(engine PRIVATE
  tools/bench.c
  tools/bench_conv.c
  tools/bench_network.c
  tools/bench_pointwise.c
  tools/bench_row.c
  tools/compile.c
  tools/devices.c
  tools/shapes.c
  tools/tool.c
  tools/tune.c
  tools/workbench.c
)
add_executable(voxeld-tools tools/main.c)
vx_law(voxeld-tools engine kernels)
target_link_libraries(voxeld-tools PRIVATE engine)
