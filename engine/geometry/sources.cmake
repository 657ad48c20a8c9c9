# Keys, neighbour maps, and the cache that keeps them.
target_sources(engine PRIVATE
  geometry/geometry.c
  geometry/keys.c
  geometry/map.c
  geometry/room.c
  geometry/sort.c
)
# The walk over sorted keys is the price of a map: unrolled and with its invariants out of the way.
set_source_files_properties(geometry/map.c geometry/sort.c PROPERTIES COMPILE_OPTIONS
  "$<$<NOT:$<CONFIG:Debug>>:-O3>")
