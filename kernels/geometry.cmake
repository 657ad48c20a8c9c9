# Coordinates to neighbours on the device: bricks, and plain hashing to measure them against.
target_sources(kernels PRIVATE
  01_coord_hash_device_ref.c
  01_coord_hash_spec.c
  02_neighbor_map_device_ref.c
  02_neighbor_map_spec.c
  03_brick_index_ref.c
  03_brick_index_spec.c
  03_brick_map_ref.c
  03_brick_map_spec.c
  15_geometry_join_ref.c
  15_geometry_join_spec.c
  21_set_derive_ref.c
  21_set_derive_spec.c
  22_level_map_ref.c
  22_level_map_spec.c
  25_set_ranks_ref.c
  25_set_ranks_spec.c
  26_set_occupancy_ref.c
  26_set_occupancy_spec.c
  27_top_rows_ref.c
  27_top_rows_spec.c
)
