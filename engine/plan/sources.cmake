target_sources(engine PRIVATE
  engine.c
  plan/exec.c
  plan/memory.c
  plan/plan.c
)
