/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/trap.h"

#include <pthread.h>
#include <ucontext.h>

#if !defined(__x86_64__)
#error "fibers are written for x86-64"
#endif

static const int signals[AMD_TRAP_SIGNALS] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL};

static struct amd_trap *current;
static pthread_t owner;
static u8 handler_stack[64 << 10] __attribute__((aligned(64)));

static u32 index_of(int number)
{
    u32 i = 0;
    while (i < AMD_TRAP_SIGNALS - 1 && signals[i] != number) i++;
    return i;
}

/* The fiber's own stack may be what is exhausted, so it goes on at the stack's top. */
static void on_signal(int number, siginfo_t *info, void *context)
{
    struct amd_trap *trap = current;
    if (!trap) return;
    if (!pthread_equal(owner, pthread_self()) || !trap->stack) {
        (void)sigaction(number, &trap->before[index_of(number)], NULL);
        return; /* and the instruction raises it again */
    }
    trap->signal = number;
    trap->address = (u64)(uintptr_t)info->si_addr;
    ucontext_t *fiber = context;
    fiber->uc_mcontext.gregs[REG_RIP] = (greg_t)(uintptr_t)trap->landing;
    /* As after a call: 8 bytes below a multiple of 16. */
    fiber->uc_mcontext.gregs[REG_RSP] = (greg_t)((trap->stack & ~(u64)15) - 256 - 8);
    trap->stack = 0;
}

void amd_trap_begin(struct amd_trap *trap, void (*landing)(void))
{
    trap->landing = landing;
    trap->stack = 0;
    owner = pthread_self();
    current = trap;
    const stack_t mine = {.ss_sp = handler_stack, .ss_size = sizeof handler_stack};
    (void)sigaltstack(&mine, &trap->stack_before);
    struct sigaction action = {.sa_sigaction = on_signal,
                               .sa_flags = SA_SIGINFO | SA_ONSTACK};
    (void)sigemptyset(&action.sa_mask);
    for (u32 i = 0; i < AMD_TRAP_SIGNALS; i++)
        (void)sigaction(signals[i], &action, &trap->before[i]);
}

void amd_trap_end(struct amd_trap *trap)
{
    for (u32 i = 0; i < AMD_TRAP_SIGNALS; i++)
        (void)sigaction(signals[i], &trap->before[i], NULL);
    (void)sigaltstack(&trap->stack_before, NULL);
    current = NULL;
}
