target_sources(engine PRIVATE gpu/map.c gpu/pieces.c)
