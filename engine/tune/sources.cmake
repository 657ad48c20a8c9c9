target_sources(engine PRIVATE
  tune/data.c
  tune/measure.c
  tune/oracle.c
  tune/pick.c
  tune/stand.c
  tune/table.c
)
