# Convolutions on the device.
target_sources(kernels PRIVATE
  04_conv_gather_ref.c
  04_conv_gather_spec.c
  06_conv_masked_ref.c
  06_conv_masked_spec.c
  24_conv_group_ref.c
  24_conv_group_spec.c
  29_weight_tile_ref.c
  29_weight_tile_spec.c
  33_mlp_ref.c
  33_mlp_spec.c
  36_conv_narrow_ref.c
  36_conv_narrow_spec.c
)
