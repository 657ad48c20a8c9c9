/* SPDX-License-Identifier: Apache-2.0 */
#include "tests/amd/fibers.h"

#include "tests/amd/lane.h"
#include "tests/amd/lds.h"
#include "tests/amd/trap.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define STACK_BYTES (128u << 10)
#define GUARD_BYTES 4096u
/* Stacks begin at different lines of a page: where all begin at the same, they are in the same few
 * sets of the processor's cache, and each switch waits for memory.  What a kernel reads above its
 * stack is a guard page at once for one lane in 64, whose shift is 0. */
#define LINE_BYTES  64u
#define SHIFT_BYTES 4096u
#define FIBER_BYTES (GUARD_BYTES + STACK_BYTES + SHIFT_BYTES)
#define AHEAD       3u /* fibers whose stacks are fetched before they run */
#define NOBODY      UINT32_MAX
#define WORD_BITS   64u
#define WORDS       (AMD_THREADS_MAX / WORD_BITS)

/* A bit for each lane of a block; the lanes of a wave are in one word. */
struct lane_set {
    u64 words[WORDS];
};

static struct {
    pthread_mutex_t lock;
    u8 *stacks; /* AMD_THREADS_MAX, each above a page that nobody may touch */
    _Alignas(LINE_BYTES) struct amd_lane lanes[AMD_THREADS_MAX];
    struct lane_set ready, live, barrier; /* may run; not left; stopped at a barrier */
    void *stack_of[AMD_THREADS_MAX]; /* the stack pointers of those that do not run */
    u16 order[AMD_THREADS_MAX];      /* the lanes that run now */
    u32 current;                     /* the lane that runs */
    u32 at[3];                       /* the block that runs */
    u64 random;
    void *scheduler; /* its stack pointer while a fiber runs */
    const struct amd_launch *launch;
    struct amd_trap trap;
} run = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* --- from stack to stack --- */

/* Keeps what the System V ABI makes the callee keep, and goes on at the other stack. */
__attribute__((visibility("hidden"))) void amd_switch(void **from, void *to);
__asm__(".text\n"
        ".globl amd_switch\n"
        ".hidden amd_switch\n"
        ".type amd_switch, @function\n"
        "amd_switch:\n"
        "pushq %rbp\n pushq %rbx\n pushq %r12\n pushq %r13\n pushq %r14\n pushq %r15\n"
        "movq %rsp, (%rdi)\n"
        "movq %rsi, %rsp\n"
        "popq %r15\n popq %r14\n popq %r13\n popq %r12\n popq %rbx\n popq %rbp\n"
        "popq %rcx\n" /* not ret: the processor foretells the caller, who is never it */
        "jmpq *%rcx\n"
        ".size amd_switch, .-amd_switch\n"
        ".previous\n");

static struct amd_lane *me(void)
{
    return &run.lanes[run.current];
}

static struct amd_lane *wait_at(enum amd_step step, u32 site)
{
    struct amd_lane *lane = me();
    lane->step = step;
    lane->site = site;
    return lane;
}

static inline void leave(void)
{
    run.trap.stack = 0;
    amd_switch(&run.stack_of[run.current], run.scheduler);
}

static void fiber_main(void)
{
    run.launch->kernel->run(run.launch->args);
    (void)wait_at(AMD_LEFT, 0);
    leave();
}

static void fiber_trapped(void)
{
    (void)wait_at(AMD_TRAPPED, 0);
    leave();
}

static u8 *stack_top(u32 lane)
{
    u8 *end = run.stacks + (size_t)(lane + 1) * FIBER_BYTES;
    return end - lane * LINE_BYTES % SHIFT_BYTES;
}

/* As if the fiber had called amd_switch from the beginning of fiber_main: six registers,
 * then where to go on, and nowhere to return to from there. */
static void fiber_start(u32 lane)
{
    u64 *top = (u64 *)(void *)stack_top(lane);
    void (*begin)(void) = fiber_main;
    *--top = 0;
    memcpy(--top, &begin, sizeof begin);
    top -= 6;
    memset(top, 0, 6 * sizeof *top);
    run.stack_of[lane] = top;
    run.lanes[lane] = (struct amd_lane){.step = AMD_RUNS};
}

static void set_change(struct lane_set *set, u32 lane, bool in)
{
    u64 bit = (u64)1 << lane % WORD_BITS;
    u64 *word = &set->words[lane / WORD_BITS];
    *word = in ? *word | bit : *word & ~bit;
}

static void fiber_resume(u32 lane)
{
    run.current = lane;
    run.lanes[lane].step = AMD_RUNS;
    run.trap.stack = (u64)(uintptr_t)stack_top(lane);
    amd_switch(&run.scheduler, run.stack_of[lane]);
    set_change(&run.ready, lane, false);
    if (run.lanes[lane].step == AMD_BARRIER) set_change(&run.barrier, lane, true);
    if (run.lanes[lane].step == AMD_LEFT) set_change(&run.live, lane, false);
}

static bool stacks_open(char why[AMD_WHY_BYTES])
{
    size_t one = FIBER_BYTES;
    if (run.stacks) return true;
    void *got = mmap(NULL, AMD_THREADS_MAX * one, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED) {
        (void)snprintf(why, AMD_WHY_BYTES, "no memory for the stacks of a block");
        return false;
    }
    run.stacks = got;
    for (u32 lane = 0; lane < AMD_THREADS_MAX; lane++)
        (void)mprotect(run.stacks + lane * one, GUARD_BYTES, PROT_NONE);
    return true;
}

/* --- what kernels call --- */

static u32 hook_where(u32 what)
{
    return what == AMD_THREAD ? run.current : run.at[what - AMD_BLOCK_X];
}

static void hook_barrier(u32 site)
{
    (void)wait_at(AMD_BARRIER, site);
    leave();
}

static void hook_wave_barrier(u32 site)
{
    (void)wait_at(AMD_WAVE_BARRIER, site);
    leave();
}

static u64 hook_ballot(u32 site, u32 said)
{
    struct amd_lane *lane = wait_at(AMD_BALLOT, site);
    lane->value = said;
    leave();
    return lane->answer;
}

static u32 hook_shuffle(u32 site, u32 other, u32 value)
{
    struct amd_lane *lane = wait_at(AMD_SHUFFLE, site);
    lane->other = other;
    lane->value = value;
    leave();
    return (u32)lane->answer;
}

static u32 hook_first(u32 site, u32 value)
{
    struct amd_lane *lane = wait_at(AMD_FIRST, site);
    lane->value = value;
    leave();
    return (u32)lane->answer;
}

static void hook_matrix(u32 site, u32 which, const void *a, const void *b, void *c)
{
    struct amd_lane *lane = wait_at(AMD_MATRIX, site);
    lane->which = which;
    lane->registers = (struct amd_registers){.a = a, .b = b, .c = c};
    leave();
}

const struct amd_hooks amd_fiber_hooks = {
    .where = hook_where,
    .barrier = hook_barrier,
    .wave_barrier = hook_wave_barrier,
    .ballot = hook_ballot,
    .shuffle = hook_shuffle,
    .first = hook_first,
    .matrix = hook_matrix,
};

/* --- the schedule --- */

static u32 random_below(u32 bound)
{
    run.random = run.random * 6364136223846793005u + 1442695040888963407u;
    return (u32)((run.random >> 33) * bound >> 31);
}

/* The lanes of a set into run.order, by chance where there is a seed; returns how many. */
static u32 order_of(const struct lane_set *set)
{
    u32 count = 0;
    for (u32 w = 0; w < WORDS; w++)
        for (u64 left = set->words[w]; left; left &= left - 1)
            run.order[count++] = (u16)(w * WORD_BITS + (u32)__builtin_ctzll(left));
    for (u32 i = count; run.launch->seed && i > 1; i--) {
        u32 j = random_below(i);
        u16 kept = run.order[i - 1];
        run.order[i - 1] = run.order[j];
        run.order[j] = kept;
    }
    return count;
}

static u64 set_wave(const struct lane_set *set, u32 wave_index)
{
    u32 wave = run.launch->wave, first = wave_index * wave;
    u64 bits = set->words[first / WORD_BITS] >> first % WORD_BITS;
    return wave < WORD_BITS ? bits & (((u64)1 << wave) - 1) : bits;
}

/* Waves wait though they could run: half of them, so that some get ahead. */
static struct lane_set without_held(const struct lane_set *set, u32 waves)
{
    struct lane_set kept = *set;
    u32 wave = run.launch->wave;
    for (u32 w = 0; run.launch->seed && w < waves; w++)
        if (random_below(2))
            kept.words[w * wave / WORD_BITS] &=
                ~(set_wave(set, w) << w * wave % WORD_BITS);
    return kept;
}

static void fetch_lane(u32 lane)
{
    __builtin_prefetch(&run.lanes[lane], 1);
    __builtin_prefetch(run.stack_of[lane], 1);
    __builtin_prefetch((u8 *)run.stack_of[lane] + LINE_BYTES, 1);
}

/* Runs the threads of a set, which are ready; false: there were none. */
static bool run_set(const struct lane_set *set)
{
    u32 count = order_of(set);
    for (u32 i = 0; i < count; i++) {
        u32 lane = run.order[i];
        fetch_lane(run.order[i + AHEAD < count ? i + AHEAD : i]);
        fiber_resume(lane);
        if (run.lanes[lane].step == AMD_TRAPPED) break;
    }
    return count;
}

static bool set_empty(const struct lane_set *set)
{
    u64 any = 0;
    for (u32 w = 0; w < WORDS; w++) any |= set->words[w];
    return !any;
}

/* What have not left go on. */
static void make_ready_wave(u32 wave_index)
{
    u32 first = wave_index * run.launch->wave;
    run.ready.words[first / WORD_BITS] |= set_wave(&run.live, wave_index)
                                          << first % WORD_BITS;
}

static bool mixed_barrier(const struct amd_lane *lanes, u32 count,
                          char why[AMD_WHY_BYTES])
{
    u32 at = NOBODY, elsewhere = NOBODY;
    for (u32 i = 0; i < count; i++) {
        if (lanes[i].step == AMD_BARRIER) at = i;
        if (lanes[i].step != AMD_BARRIER && lanes[i].step != AMD_LEFT) elsewhere = i;
    }
    (void)snprintf(why, AMD_WHY_BYTES,
                   "diverged lanes: lane %u waits at barrier %u, lane %u at %s %u", at,
                   lanes[at].site, elsewhere, amd_step_name(lanes[elsewhere].step),
                   lanes[elsewhere].site);
    return false;
}

/* One wave whose lanes have all stopped. */
static bool wave_step(u32 wave_index, char why[AMD_WHY_BYTES])
{
    u32 wave = run.launch->wave, first = wave_index * wave;
    u32 left = run.launch->threads - first, count = left < wave ? left : wave;
    struct amd_lane *lanes = run.lanes + first;
    u64 live = set_wave(&run.live, wave_index),
        barrier = set_wave(&run.barrier, wave_index);
    if (set_wave(&run.ready, wave_index) || barrier == live)
        return true; /* held, or done */
    if (barrier) return mixed_barrier(lanes, count, why);
    if (!amd_wave_meet(lanes, count, wave, why)) return false;
    make_ready_wave(wave_index);
    return true;
}

/* All threads that have not left wait at a barrier. */
static bool barrier_meet(char why[AMD_WHY_BYTES])
{
    u32 threads = run.launch->threads, first = NOBODY, live = 0;
    for (u32 i = 0; i < threads; i++) {
        if (run.lanes[i].step == AMD_LEFT) continue;
        if (first == NOBODY) first = i;
        live++;
        if (run.lanes[i].site == run.lanes[first].site) continue;
        (void)snprintf(why, AMD_WHY_BYTES,
                       "threads of a block at different barriers: thread %u at %u, "
                       "thread %u at %u",
                       first, run.lanes[first].site, i, run.lanes[i].site);
        return false;
    }
    if (live < threads) {
        (void)snprintf(why, AMD_WHY_BYTES,
                       "barrier %u: %u of %u threads reach it, the others have left",
                       run.lanes[first].site, live, threads);
        return false;
    }
    run.ready = run.live;
    memset(&run.barrier, 0, sizeof run.barrier);
    return true;
}

static bool report_trap(char why[AMD_WHY_BYTES])
{
    const struct amd_trap *trap = &run.trap;
    u64 low = (u64)(uintptr_t)run.stacks;
    bool stack = trap->address - low < AMD_THREADS_MAX * (u64)FIBER_BYTES;
    const char *what = amd_lds_near(trap->address) ? "shared memory that it does not have"
                       : stack ? "private memory that it does not have"
                               : "memory that is not there";
    if (trap->signal == SIGFPE)
        (void)snprintf(why, AMD_WHY_BYTES, "thread %u divides by zero", run.current);
    else if (trap->signal == SIGILL)
        (void)snprintf(why, AMD_WHY_BYTES, "thread %u traps", run.current);
    else
        (void)snprintf(why, AMD_WHY_BYTES, "thread %u accesses %s: address %#llx",
                       run.current, what, (unsigned long long)trap->address);
    return false;
}

static bool block_run(char why[AMD_WHY_BYTES])
{
    const struct amd_launch *launch = run.launch;
    u32 threads = launch->threads, waves = (threads + launch->wave - 1) / launch->wave;
    memset(&run.live, 0, sizeof run.live);
    memset(&run.barrier, 0, sizeof run.barrier);
    for (u32 i = 0; i < threads; i++) {
        fiber_start(i);
        set_change(&run.live, i, true);
    }
    run.ready = run.live;
    for (;;) {
        const struct lane_set some = without_held(&run.ready, waves);
        if (!run_set(&some)) (void)run_set(&run.ready);
        if (run.lanes[run.current].step == AMD_TRAPPED) return report_trap(why);
        for (u32 w = 0; w < waves; w++)
            if (!wave_step(w, why)) return false;
        if (set_empty(&run.live)) return true;
        bool all_wait = !memcmp(&run.live, &run.barrier, sizeof run.live);
        if (all_wait && !barrier_meet(why)) return false;
    }
}

/* --- the launch --- */

bool amd_fibers_check(const struct amd_launch *launch, char why[AMD_WHY_BYTES])
{
    const struct amd_kernel *kernel = launch->kernel;
    u32 threads = launch->threads;
    const u32 *grid = launch->grid;
    if (!threads || threads > AMD_THREADS_MAX || threads < kernel->threads_min ||
        threads > kernel->threads_max) {
        (void)snprintf(why, AMD_WHY_BYTES, "%s: blocks of %u threads: expected %u to %u",
                       kernel->name, threads, kernel->threads_min, kernel->threads_max);
        return false;
    }
    if (!grid[0] || !grid[1] || !grid[2] || grid[1] > 65535 || grid[2] > 65535) {
        (void)snprintf(why, AMD_WHY_BYTES, "%s: a grid of %u x %u x %u blocks",
                       kernel->name, grid[0], grid[1], grid[2]);
        return false;
    }
    if (launch->lds_dynamic > AMD_LDS_BYTES ||
        kernel->lds_static + launch->lds_dynamic > AMD_LDS_BYTES) {
        (void)snprintf(why, AMD_WHY_BYTES,
                       "%s: %u bytes of static and %u of dynamic shared memory: a block "
                       "has %u",
                       kernel->name, kernel->lds_static, launch->lds_dynamic,
                       AMD_LDS_BYTES);
        return false;
    }
    return true;
}

static bool one_block(u64 seed, char why[AMD_WHY_BYTES])
{
    char text[AMD_WHY_BYTES] = "";
    run.random = seed;
    amd_lds_fill(seed);
    bool done = block_run(text);
    if (done && amd_lds_overrun()) {
        (void)snprintf(text, sizeof text, "it writes beyond its shared memory");
        done = false;
    }
    if (!done)
        (void)snprintf(why, AMD_WHY_BYTES, "%.40s, block %u,%u,%u: %.180s",
                       run.launch->kernel->name, run.at[0], run.at[1], run.at[2], text);
    return done;
}

static bool all_blocks(char why[AMD_WHY_BYTES])
{
    const u32 *grid = run.launch->grid;
    u64 seed = run.launch->seed * 0x9e3779b97f4a7c15u;
    for (run.at[2] = 0; run.at[2] < grid[2]; run.at[2]++)
        for (run.at[1] = 0; run.at[1] < grid[1]; run.at[1]++)
            for (run.at[0] = 0; run.at[0] < grid[0]; run.at[0]++)
                if (!one_block(++seed, why)) return false;
    return true;
}

bool amd_fibers_run(const struct amd_launch *launch, char why[AMD_WHY_BYTES])
{
    if (!amd_fibers_check(launch, why)) return false;
    pthread_mutex_lock(&run.lock);
    run.launch = launch;
    bool done = stacks_open(why) &&
                amd_lds_open(launch->kernel->lds_static, launch->lds_dynamic, why);
    if (done) {
        amd_trap_begin(&run.trap, fiber_trapped);
        done = all_blocks(why);
        amd_trap_end(&run.trap);
    }
    pthread_mutex_unlock(&run.lock);
    return done;
}
