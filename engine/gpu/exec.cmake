# Networks on a GPU: choices, weights, launches.
target_sources(engine PRIVATE
  gpu/exec.c
  gpu/model_choice.c
  gpu/model_kernels.c
  gpu/model_launch.c
  gpu/model_load.c
  gpu/model_tune.c
  gpu/model_weights.c
)
