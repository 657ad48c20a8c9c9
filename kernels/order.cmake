# Rows sorted by mask, lists of pairs.
target_sources(kernels PRIVATE
  05_mask_order_ref.c
  05_mask_order_spec.c
  08_pair_list_ref.c
  08_pair_list_spec.c
  23_key_order_ref.c
  23_key_order_spec.c
  34_live_order_ref.c
  34_live_order_spec.c
  37_order_sweep_ref.c
  37_order_sweep_spec.c
)
