# Kernels that only pass over rows: their references and descriptions.
target_sources(kernels PRIVATE
  07_conv_reduce_ref.c
  07_conv_reduce_spec.c
  10_activation_device_ref.c
  10_activation_spec.c
  12_norm_device_ref.c
  12_norm_spec.c
  13_elementwise_device_ref.c
  13_elementwise_spec.c
  14_rows_ref.c
  14_rows_spec.c
  16_row_gather_device_ref.c
  16_row_gather_spec.c
  17_pool_device_ref.c
  17_pool_spec.c
  18_group_norm_device_ref.c
  18_group_norm_spec.c
  19_softmax_device_ref.c
  19_softmax_spec.c
  20_curve_device_ref.c
  20_curve_spec.c
  28_to_dense_device_ref.c
  28_to_dense_spec.c
  30_sample_pool_ref.c
  30_sample_pool_spec.c
)
