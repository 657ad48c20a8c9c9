/* confine: each system call that a worker must not make, made in a process of its own; and a worker's
 * work, from the files of a model to the answer, under the filter.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/confine/confine.h"
#include "tests/support/engine_rig.h"

#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <seccomp.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum rule { ALLOW, SOME, REFUSE, END };
static const struct {
    const char *name;
    enum rule cpu, gpu;
} calls[] = {
#define VX_CALL(name_, cpu_, gpu_) {#name_, cpu_, gpu_},
#include "server/confine/confine_calls.def"
#undef VX_CALL
};

static int told_fd = -1;

static void on_end(int number, const char *name)
{
    char text[64];
    int length = snprintf(text, sizeof text, "%d %s", number, name);
    if (write(told_fd, text, (size_t)length) != length) _exit(9);
}

/* ------- a process under the filter ------- */

struct outcome {
    int status; /* as from waitpid */
    char told[64];
};

/* Runs `body` in a child; its result is the exit code.  No test may take the filter itself: Check asks the
 * kernel for its clock again after a test, gets the time of day where timer_create is refused, and cannot
 * send the difference on half of all machines, by when they were started. */
static struct outcome in_child(int (*body)(void *), void *context)
{
    struct outcome outcome = {0, ""};
    int fds[2];
    ck_assert(!pipe(fds));
    fflush(NULL);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) {
        const struct rlimit none = {0, 0};
        (void)setrlimit(RLIMIT_CORE, &none);
        told_fd = fds[1];
        _exit(body(context));
    }
    close(fds[1]);
    ck_assert_int_ge(read(fds[0], outcome.told, sizeof outcome.told - 1), 0);
    close(fds[0]);
    ck_assert_int_eq(waitpid(pid, &outcome.status, 0), pid);
    return outcome;
}

struct under_filter {
    enum vx_confine_profile profile;
    int (*body)(void *);
    void *context;
};

static int run_under_filter(void *context)
{
    const struct under_filter *run = context;
    const struct vx_confine_options options = {run->profile, on_end};
    struct vx_why why = {""};
    if (!vx_confine_calls(&options, &why).fault) return run->body(run->context);
    fprintf(stderr, "%s\n", why.text);
    return 99;
}

/* Runs `body` in a child under the filter. */
static struct outcome confined(enum vx_confine_profile profile, int (*body)(void *),
                               void *context)
{
    struct under_filter run = {profile, body, context};
    return in_child(run_under_filter, &run);
}

static void expect_code(struct outcome outcome, int code, const char *what)
{
    ck_assert_msg(WIFEXITED(outcome.status) && WEXITSTATUS(outcome.status) == code,
                  "%s: expected exit code %d, got wait status 0x%x, \"%s\"", what, code,
                  (unsigned)outcome.status, outcome.told);
}

/* ------- calls by name ------- */

/* The errno of the call, with arguments that no call of the table takes. */
static int call_by_number(void *context)
{
    const int *number = context;
    if (syscall(*number, -1L, -1L, -1L, -1L, -1L, -1L) >= 0) return 0;
    return errno;
}

static void expect_rule(size_t i, enum vx_confine_profile profile)
{
    enum rule rule = profile == VX_CONFINE_CPU ? calls[i].cpu : calls[i].gpu;
    int number = seccomp_syscall_resolve_name(calls[i].name);
    char told[64];
    if (number < 0 || (rule != REFUSE && rule != END)) return;
    if (vx_confine_is_sanitizers(calls[i].name)) return;
    struct outcome outcome = confined(profile, call_by_number, &number);
    if (rule == REFUSE) {
        expect_code(outcome, EPERM, calls[i].name);
        return;
    }
    snprintf(told, sizeof told, "%d %s", number, calls[i].name);
    ck_assert_msg(WIFSIGNALED(outcome.status) && WTERMSIG(outcome.status) == SIGSYS,
                  "%s: expected SIGSYS, got wait status 0x%x", calls[i].name,
                  (unsigned)outcome.status);
    ck_assert_str_eq(outcome.told, told);
}

START_TEST(what_no_worker_calls)
{
    int ends = 0;
    for (size_t i = 0; i < VX_COUNT(calls); i++) {
        expect_rule(i, (enum vx_confine_profile)_i);
        ends += calls[i].gpu == END;
    }
    ck_assert_int_gt(ends, 30);
}
END_TEST

START_TEST(what_is_in_no_list)
{
    static const char *const names[] = {
        "mkdirat",    "unlinkat", "renameat2",     "ftruncate",     "memfd_create",
        "socketpair", "fchmodat", "epoll_create1", "inotify_init1", "shmget"};
    for (size_t i = 0; i < VX_COUNT(names); i++) {
        int number = seccomp_syscall_resolve_name(names[i]);
        ck_assert_int_ge(number, 0);
        expect_code(confined(VX_CONFINE_CPU, call_by_number, &number), ENOSYS, names[i]);
    }
}
END_TEST

/* ------- calls whose arguments matter ------- */

static int failed_with(long result)
{
    return result >= 0 ? 0 : errno;
}

static int opens(const char *path, int flags)
{
    return failed_with(open(path, flags | O_CLOEXEC, 0600));
}

static int maps(int protection)
{
    void *at = mmap(NULL, 4096, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return at == MAP_FAILED ? errno : 0;
}

static int makes_code_of_data(void)
{
    void *at =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return failed_with(mprotect(at, 4096, PROT_READ | PROT_EXEC));
}

static int forks(void)
{
    pid_t pid = fork();
    if (!pid) _exit(0);
    if (pid < 0) return errno;
    return waitpid(pid, NULL, 0) == pid ? 0 : errno;
}

static int changes_handler(int number)
{
    return failed_with(signal(number, SIG_IGN) == SIG_ERR ? -1 : 0);
}

static int sets_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit)) return errno;
    return failed_with(setrlimit(RLIMIT_NOFILE, &limit));
}

#define EXPECT(call_, errno_)                                                            \
    do {                                                                                 \
        int got_ = (call_);                                                              \
        if (got_ != (errno_)) {                                                          \
            fprintf(stderr, "%s: expected errno %d, got %d\n", #call_, (errno_), got_);  \
            return 1;                                                                    \
        }                                                                                \
    } while (0)
/* For calls that a sanitizer's build leaves alone. */
#define EXPECT_OF(name_, call_, errno_)                                                  \
    do {                                                                                 \
        if (!vx_confine_is_sanitizers(name_)) EXPECT(call_, errno_);                     \
    } while (0)

static int cpu_arguments(void *unused)
{
    (void)unused;
    EXPECT(opens("/proc/self/maps", O_RDONLY), 0);
    EXPECT(opens("/", O_RDONLY | O_DIRECTORY), 0);
    EXPECT_OF("openat", opens("/dev/null", O_WRONLY), EPERM);
    EXPECT_OF("openat", opens("/dev/null", O_RDWR), EPERM);
    EXPECT_OF("openat", opens("/nothing/there", O_RDONLY | O_CREAT), EPERM);
    EXPECT_OF("openat", opens("/nothing/there", O_RDONLY | O_TRUNC), EPERM);
    EXPECT_OF("openat", opens("/tmp", O_TMPFILE | O_WRONLY), EPERM);
    EXPECT(maps(PROT_READ | PROT_WRITE), 0);
    EXPECT_OF("mmap", maps(PROT_READ | PROT_EXEC), EPERM);
    EXPECT_OF("mprotect", makes_code_of_data(), EPERM);
    EXPECT_OF("clone", forks(), EPERM);
    EXPECT(changes_handler(SIGSYS), EPERM);
    EXPECT(changes_handler(SIGALRM), 0);
    EXPECT_OF("tgkill", failed_with(syscall(SYS_tgkill, getppid(), getppid(), 0)), EPERM);
    EXPECT(sets_limit(), EPERM);
    EXPECT(failed_with(socket(AF_UNIX, SOCK_STREAM, 0)), EPERM);
    EXPECT_OF("prctl", failed_with(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)), ENOSYS);
    EXPECT(failed_with(prctl(PR_SET_NAME, "name", 0, 0, 0)), 0);
    return 0;
}

static int cuda_arguments(void *unused)
{
    (void)unused;
    EXPECT(opens("/dev/null", O_RDWR), 0);
    EXPECT(maps(PROT_READ | PROT_EXEC), 0);
    EXPECT_OF("clone", forks(), EPERM);
    EXPECT(changes_handler(SIGSYS), EPERM);
    EXPECT(changes_handler(SIGALRM), 0);
    EXPECT_OF("tgkill", failed_with(syscall(SYS_tgkill, getppid(), getppid(), 0)), EPERM);
    EXPECT_OF("kill", failed_with(kill(getppid(), 0)), EPERM);
    EXPECT(failed_with(socket(AF_INET, SOCK_STREAM, 0)), EPERM);
    return 0;
}

/* As engine/gpu/jit/child.c starts a compiler. */
static int hip_arguments(void *unused)
{
    char name[] = "true";
    char *arguments[] = {name, NULL};
    posix_spawnattr_t attributes;
    sigset_t all;
    pid_t pid;
    int status;
    (void)unused;
    sigfillset(&all);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigdefault(&attributes, &all);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    EXPECT(posix_spawn(&pid, "/bin/true", NULL, &attributes, arguments, NULL), 0);
    EXPECT(waitpid(pid, &status, 0) == pid ? status : -1, 0);
    EXPECT(failed_with(socket(AF_INET, SOCK_STREAM, 0)), EPERM);
    return 0;
}

START_TEST(arguments_matter)
{
    expect_code(confined(VX_CONFINE_CPU, cpu_arguments, NULL), 0, "cpu");
    expect_code(confined(VX_CONFINE_CUDA, cuda_arguments, NULL), 0, "cuda");
    expect_code(confined(VX_CONFINE_HIP, hip_arguments, NULL), 0, "hip");
}
END_TEST

/* ------- all threads, and other instruction sets ------- */

static pthread_barrier_t is_set;

static void *early_thread(void *result)
{
    pthread_barrier_wait(&is_set);
    *(int *)result = failed_with(socket(AF_INET, SOCK_STREAM, 0));
    return NULL;
}

static void *late_thread(void *result)
{
    *(int *)result = failed_with(socket(AF_INET, SOCK_STREAM, 0));
    return NULL;
}

static int threads(void *profile)
{
    int early = 0, late = 0;
    pthread_t thread;
    const struct vx_confine_options options = {*(enum vx_confine_profile *)profile, NULL};
    pthread_barrier_init(&is_set, NULL, 2);
    EXPECT(pthread_create(&thread, NULL, early_thread, &early), 0);
    EXPECT(vx_confine_calls(&options, NULL).fault ? 1 : 0, 0);
    pthread_barrier_wait(&is_set);
    EXPECT(pthread_join(thread, NULL), 0);
    EXPECT(pthread_create(&thread, NULL, late_thread, &late), 0);
    EXPECT(pthread_join(thread, NULL), 0);
    EXPECT(early, EPERM);
    EXPECT(late, EPERM);
    return 0;
}

START_TEST(threads_before_and_after)
{
    enum vx_confine_profile profile = (enum vx_confine_profile)_i;
    expect_code(in_child(threads, &profile), 0, "threads");
}
END_TEST

#ifdef __x86_64__
/* getpid of 32-bit programs; a kernel without them sends SIGSEGV. */
static int call_as_32_bit(void *unused)
{
    long result;
    (void)unused;
    __asm__ volatile("int $0x80" : "=a"(result) : "a"(20L) : "memory");
    return 0;
}

START_TEST(other_instruction_sets)
{
    struct outcome outcome = confined((enum vx_confine_profile)_i, call_as_32_bit, NULL);
    ck_assert_msg(WIFSIGNALED(outcome.status), "wait status 0x%x",
                  (unsigned)outcome.status);
}
END_TEST
#endif

/* ------- a worker's work ------- */

/* As the device thread does: opens the device, sets the filter, and has models read on another
 * thread. */
static int work(void *root)
{
    const struct vx_confine_options options = {VX_CONFINE_CPU, NULL};
    struct vx_why why = {""};
    char own[VX_TEST_PATH_BYTES];
    vx_rig_set_up();
    memcpy(own, vx_rig_root, sizeof own);
    if (rmdir(own)) return 2;
    if (vx_confine_calls(&options, &why).fault) return 3;
    for (u64 round = 1; round <= 3; round++) {
        struct vx_model *model = vx_rig_load(root);
        struct vx_rig_request *request = vx_rig_request(round, 300, 4, VX_DTYPE_F32);
        vx_rig_run(model, &request->item);
        struct vx_rig_files files = vx_rig_files_open(root);
        vx_rig_compare(request, &files);
        vx_rig_files_close(&files);
        vx_engine_unload(vx_rig_engine, &model);
        free(request);
    }
    vx_engine_close(&vx_rig_engine);
    return 0;
}

START_TEST(the_engine_works)
{
    char root[VX_TEST_PATH_BYTES];
    int status;
    vx_test_directory(root);
    vx_rig_write_model(root, vx_rig_networks[_i], 7);
    pid_t pid = fork();
    ck_assert_int_ge(pid, 0);
    if (!pid) _exit(work(root));
    ck_assert_int_eq(waitpid(pid, &status, 0), pid);
    vx_test_remove(root);
    ck_assert_msg(!status, "wait status 0x%x", (unsigned)status);
}
END_TEST

/* ------- privileges and cores ------- */

START_TEST(no_new_privileges)
{
    vx_confine_privileges();
    ck_assert_int_eq(prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), 1);
}
END_TEST

/* What a child of this process would leave in a core. */
START_TEST(cores_only_if_wanted)
{
    struct rlimit before, after;
    char filter[16] = "";
    ck_assert(!getrlimit(RLIMIT_CORE, &before));
    before.rlim_cur = before.rlim_max;
    ck_assert(!setrlimit(RLIMIT_CORE, &before));
    vx_confine_cores(true);
    ck_assert(!getrlimit(RLIMIT_CORE, &after));
    ck_assert_uint_eq(after.rlim_cur, before.rlim_cur);
    vx_confine_cores(false);
    ck_assert(!getrlimit(RLIMIT_CORE, &after));
    ck_assert_uint_le(after.rlim_cur, 1);
    ck_assert_uint_le(after.rlim_max, 1);
    FILE *file = fopen("/proc/self/coredump_filter", "r");
    ck_assert(file && fgets(filter, sizeof filter, file));
    fclose(file);
    ck_assert_uint_eq(strtoul(filter, NULL, 16), 0x10);
}
END_TEST

static Suite *confine_suite(void)
{
    Suite *suite = suite_create("confine");
    TCase *tcase = tcase_create("confine");
    tcase_set_timeout(tcase, 60);
    tcase_add_loop_test(tcase, what_no_worker_calls, VX_CONFINE_CPU, VX_CONFINE_HIP + 1);
    tcase_add_test(tcase, what_is_in_no_list);
    tcase_add_test(tcase, arguments_matter);
    tcase_add_loop_test(tcase, threads_before_and_after, VX_CONFINE_CPU,
                        VX_CONFINE_HIP + 1);
#ifdef __x86_64__
    tcase_add_loop_test(tcase, other_instruction_sets, VX_CONFINE_CPU,
                        VX_CONFINE_HIP + 1);
#endif
    tcase_add_loop_test(tcase, the_engine_works, 0, VX_RIG_NETWORKS);
    tcase_add_test(tcase, no_new_privileges);
    tcase_add_test(tcase, cores_only_if_wanted);
    suite_add_tcase(suite, tcase);
    return suite;
}

int main(void)
{
    SRunner *runner = srunner_create(confine_suite());
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
