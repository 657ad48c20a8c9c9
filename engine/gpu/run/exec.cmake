# Networks on a GPU: choices, weights, launches.
target_sources(engine PRIVATE
  gpu/batches.c
  gpu/exec.c
  gpu/geometry_store.c
  gpu/lane.c
  gpu/model_choice.c
  gpu/model_kernels.c
  gpu/model_launch.c
  gpu/model_load.c
  gpu/model_tune.c
  gpu/model_weights.c
  gpu/round.c
  gpu/round_geometry.c
)
