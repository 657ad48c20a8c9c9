# The ladder of convolutions: pure choices and costs, and the launches.
target_sources(engine PRIVATE
  gpu/blas.c
  gpu/conv.c
  gpu/conv_cost.c
)
