target_sources(engine PRIVATE
  engine.c
  plan/backend_cpu.c
  plan/exec.c
  plan/memory.c
  plan/plan.c
)
