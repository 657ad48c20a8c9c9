target_sources(engine PRIVATE gpu/order.c)
