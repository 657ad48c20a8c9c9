# The convolution algorithms: launches and cost model.
target_sources(engine PRIVATE
  gpu/blas.c
  gpu/conv.c
  gpu/conv_cost.c
)
