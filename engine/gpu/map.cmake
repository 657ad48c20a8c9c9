target_sources(engine PRIVATE gpu/map.c)
