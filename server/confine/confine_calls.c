/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/process/check.h"
#include "server/confine/confine.h"

#include <errno.h>
#include <execinfo.h>
#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#ifndef PR_SET_VMA /* names of mappings: Linux 5.17 */
#define PR_SET_VMA 0x53564d41
#endif
#ifndef SYS_SECCOMP /* si_code of a filter's SIGSYS; the C library has no name for it */
#define SYS_SECCOMP 1
#endif
#if defined(__has_feature)
#define HAS_FEATURE(name_) __has_feature(name_)
#else
#define HAS_FEATURE(name_) 0
#endif
/* Sanitizers look for leaks with a process that traces this one, and start a program that
 * names the lines of a report.  Their builds are not for serving. */
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) ||                     \
    HAS_FEATURE(address_sanitizer) || HAS_FEATURE(thread_sanitizer)
#define IS_SANITIZED 1
#else
#define IS_SANITIZED 0
#endif

enum rule { ALLOW, SOME, REFUSE, END };

static const struct call {
    const char *name;
    enum rule cpu, gpu;
} calls[] = {
#define VX_CALL(name_, cpu_, gpu_) {#name_, cpu_, gpu_},
#include "server/confine/confine_calls.def"
#undef VX_CALL
};

/* ------- the end of a process that makes a wrong call ------- */

/* Numbers of this machine; written once, before the filter is set. */
static int numbers[VX_COUNT(calls)];
static vx_confine_on_end *end_told;

static void end_on_signal(int number, siginfo_t *info, void *context)
{
    (void)context;
    const char *name = "unknown";
    for (size_t i = 0; i < VX_COUNT(calls); i++)
        if (numbers[i] == info->si_syscall) name = calls[i].name;
    /* Anyone may send the signal; only the filter's names a call. */
    if (end_told && info->si_code == SYS_SECCOMP) end_told(info->si_syscall, name);
    /* SA_RESETHAND has made the default of it.  SA_NODEFER lets it through, except under
     * ThreadSanitizer, which blocks all signals in a handler. */
    sigset_t own;
    sigemptyset(&own);
    sigaddset(&own, number);
    (void)pthread_sigmask(SIG_UNBLOCK, &own, NULL);
    VX_ASSERT(raise(number)); /* does not return, unless it fails */
}

static void end_prepare(vx_confine_on_end *told)
{
    end_told = told;
    for (size_t i = 0; i < VX_COUNT(calls); i++)
        numbers[i] = seccomp_syscall_resolve_name(calls[i].name);
    struct sigaction action = {
        .sa_sigaction = end_on_signal,
        .sa_flags = (int)(SA_SIGINFO | SA_ONSTACK | SA_RESETHAND | SA_NODEFER)};
    VX_ASSERT(!sigaction(SIGSYS, &action, NULL));
}

/* ------- rules ------- */

struct building {
    scmp_filter_ctx filter;
    enum vx_confine_profile profile;
    u32 otherwise; /* what becomes of a call without a rule */
    int failed;    /* the first negative errno */
};

/* What sanitizers need beyond a worker, whatever its arguments. */
static const char *const sanitizers[] = {
    "clone",    "fork",    "vfork", "execve",   "ptrace",
    "wait4",    "prctl",   "pipe",  "pipe2",    "dup2",
    "open",     "openat",  "mmap",  "mprotect", "kill",
    "getdents", "getppid", "ioctl", "tgkill",   "process_vm_readv",
};

bool vx_confine_is_sanitizers(const char *name)
{
    for (size_t i = 0; IS_SANITIZED && i < VX_COUNT(sanitizers); i++)
        if (!strcmp(sanitizers[i], name)) return true;
    return false;
}

/* Adds a rule for calls of that name for which all of `compared` hold. */
static void add_where(struct building *it, u32 action, const char *name, u32 count,
                      const struct scmp_arg_cmp *compared)
{
    int number = seccomp_syscall_resolve_name(name);
    if (number == __NR_SCMP_ERROR) return; /* this machine's headers do not have it */
    if (action == it->otherwise || vx_confine_is_sanitizers(name)) return;
    int result = seccomp_rule_add_array(it->filter, action, number, count, compared);
    if (result < 0 && !it->failed) it->failed = result;
}

static void add(struct building *it, u32 action, const char *name)
{
    add_where(it, action, name, 0, NULL);
}

static void add_if(struct building *it, u32 action, const char *name,
                   struct scmp_arg_cmp compared)
{
    add_where(it, action, name, 1, &compared);
}

/* An argument of flags: refused where one of them is set, allowed where none is. */
static void add_flags(struct building *it, const char *name, unsigned which,
                      const u32 *flags, size_t count)
{
    u32 all = 0;
    for (size_t i = 0; i < count; i++) {
        all |= flags[i];
        add_if(it, SCMP_ACT_ERRNO(EPERM), name,
               SCMP_CMP32(which, SCMP_CMP_MASKED_EQ, flags[i], flags[i]));
    }
    add_if(it, SCMP_ACT_ALLOW, name, SCMP_CMP32(which, SCMP_CMP_MASKED_EQ, all, 0));
}

/* ------- calls whose arguments matter ------- */

/* Threads only.  clone3 hides its flags behind a pointer, so it is as on a kernel without
 * it, and the C library makes its threads with clone. */
static void some_clone(struct building *it)
{
    if (it->profile == VX_CONFINE_HIP) return;
    add(it, SCMP_ACT_ERRNO(ENOSYS), "clone3");
    add_if(it, SCMP_ACT_ALLOW, "clone",
           SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_THREAD, CLONE_THREAD));
    add_if(it, SCMP_ACT_ERRNO(EPERM), "clone",
           SCMP_A0_64(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
}

static void some_signals(struct building *it)
{
    const scmp_datum_t self = (scmp_datum_t)getpid();
    const bool hip = it->profile == VX_CONFINE_HIP;
    /* The handler stays.  To a child that is about to become a compiler it is a success. */
    add_if(it, SCMP_ACT_ERRNO(hip ? 0 : EPERM), "rt_sigaction",
           SCMP_A0_32(SCMP_CMP_EQ, SIGSYS, 0));
    add_if(it, SCMP_ACT_ALLOW, "rt_sigaction", SCMP_A0_32(SCMP_CMP_NE, SIGSYS, 0));
    if (hip) return; /* it ends a compiler that hangs */
    add_if(it, SCMP_ACT_ALLOW, "tgkill", SCMP_A0_32(SCMP_CMP_EQ, self, 0));
    add_if(it, SCMP_ACT_ERRNO(EPERM), "tgkill", SCMP_A0_32(SCMP_CMP_NE, self, 0));
    add(it, SCMP_ACT_ERRNO(EPERM), "kill");
}

static void some_programs(struct building *it)
{
    if (it->profile == VX_CONFINE_HIP) return;
    add(it, SCMP_ACT_TRAP, "execve");
    add(it, SCMP_ACT_TRAP, "fork");
    add(it, SCMP_ACT_TRAP, "vfork");
}

/* Files are read; memory is data; no terminal; limits are asked for, not set. */
static void some_of_cpu(struct building *it)
{
    static const u32 changes[] = {O_WRONLY, O_RDWR, O_CREAT, O_TRUNC,
                                  O_TMPFILE & ~O_DIRECTORY};
    static const u32 code[] = {PROT_EXEC};
    static const int asked[] = {PR_SET_NAME, PR_GET_NAME, PR_SET_TIMERSLACK,
                                PR_GET_DUMPABLE, PR_SET_VMA};
    if (it->profile != VX_CONFINE_CPU) return;
    add_flags(it, "open", 1, changes, VX_COUNT(changes));
    add_flags(it, "openat", 2, changes, VX_COUNT(changes));
    add_flags(it, "mmap", 2, code, VX_COUNT(code));
    add_flags(it, "mprotect", 2, code, VX_COUNT(code));
    add(it, SCMP_ACT_ERRNO(ENOTTY), "ioctl");
    add_if(it, SCMP_ACT_ALLOW, "prlimit64", SCMP_A2_64(SCMP_CMP_EQ, 0, 0));
    add_if(it, SCMP_ACT_ERRNO(EPERM), "prlimit64", SCMP_A2_64(SCMP_CMP_NE, 0, 0));
    for (size_t i = 0; i < VX_COUNT(asked); i++)
        add_if(it, SCMP_ACT_ALLOW, "prctl",
               SCMP_A0_32(SCMP_CMP_EQ, (scmp_datum_t)asked[i], 0));
}

/* ------- the filter ------- */

static void add_calls(struct building *it)
{
    for (size_t i = 0; i < VX_COUNT(calls); i++) {
        enum rule rule = it->profile == VX_CONFINE_CPU ? calls[i].cpu : calls[i].gpu;
        switch (rule) {
        case ALLOW: add(it, SCMP_ACT_ALLOW, calls[i].name); break;
        case REFUSE: add(it, SCMP_ACT_ERRNO(EPERM), calls[i].name); break;
        case END: add(it, SCMP_ACT_TRAP, calls[i].name); break;
        case SOME: break; /* below */
        }
    }
    some_clone(it);
    some_signals(it);
    some_programs(it);
    some_of_cpu(it);
}

/* In a sanitizer's build: see vx_confine_is_sanitizers. */
static void add_sanitizers(struct building *it)
{
    if (it->otherwise == SCMP_ACT_ALLOW) return;
    for (size_t i = 0; IS_SANITIZED && i < VX_COUNT(sanitizers); i++) {
        int number = seccomp_syscall_resolve_name(sanitizers[i]);
        if (number != __NR_SCMP_ERROR)
            (void)seccomp_rule_add(it->filter, SCMP_ACT_ALLOW, number, 0);
    }
}

static void keep(struct building *it, int result)
{
    if (result < 0 && !it->failed) it->failed = result;
}

static void load(struct building *it)
{
    /* The other instruction sets of this processor have other numbers. */
    keep(it,
         seccomp_attr_set(it->filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS));
    keep(it, seccomp_attr_set(it->filter, SCMP_FLTATR_CTL_TSYNC, 1)); /* all threads */
    /* Before Linux 5.16 a filter also slows every load down, unless it asks not to. */
    keep(it, seccomp_attr_set(it->filter, SCMP_FLTATR_CTL_SSB, 1));
    keep(it, seccomp_attr_set(it->filter, SCMP_FLTATR_CTL_OPTIMIZE, 2)); /* a tree */
    keep(it,
         seccomp_attr_set(it->filter, SCMP_FLTATR_API_SYSRAWRC, 1)); /* for the text */
    if (!it->failed) keep(it, seccomp_load(it->filter));
}

vx_status vx_confine_calls(const struct vx_confine_options *options, struct vx_why *why)
{
    void *frame;
    struct building it = {.profile = options->profile};
    it.otherwise = it.profile == VX_CONFINE_CPU ? SCMP_ACT_ERRNO(ENOSYS) : SCMP_ACT_ALLOW;
    it.filter = seccomp_init(it.otherwise);
    VX_ENSURE(it.filter, RESOURCE_EXHAUSTED, "no memory for the filter of system calls");
    /* Loads the library that vx_panic walks the stack with. */
    (void)backtrace(&frame, 1);
    end_prepare(options->on_end);
    add_calls(&it);
    add_sanitizers(&it);
    load(&it);
    seccomp_release(it.filter);
    VX_ENSURE_WHY(
        !it.failed, why, UNIMPLEMENTED, "the kernel takes no filter of system calls",
        "seccomp: the kernel takes no filter of system calls: %s", strerror(-it.failed));
    return VX_OK;
}
