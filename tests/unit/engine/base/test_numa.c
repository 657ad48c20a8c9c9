/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE
#include "engine/base/numa.h"

#include <check.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static struct vx_why why;

/* A set as the system would write it. */
static void print_set(const struct vx_numa_set *set, char text[256])
{
    size_t used = 0;
    text[0] = '\0';
    for (i32 i = 0; i < VX_NUMA_CPUS_MAX; i++) {
        if (!vx_numa_has(set, i)) continue;
        i32 last = i;
        while (vx_numa_has(set, last + 1)) last++;
        used += (size_t)snprintf(text + used, 256 - used, last > i ? "%s%d-%d" : "%s%d",
                                 used ? "," : "", i, last);
        i = last;
    }
}

START_TEST(test_lists)
{
    static const struct {
        const char *text;
        i32 count;
        const char *again;
    } good[] = {
        {"", 0, ""},
        {"\n", 0, ""},
        {"0\n", 1, "0"},
        {"3", 1, "3"},
        {"0-15,32-47\n", 32, "0-15,32-47"},
        {"0-1,2,3-5", 6, "0-5"},
        {"7,7,7-7", 1, "7"},
        {"63-64", 2, "63-64"},
        {"1023", 1, "1023"},
        {"1000-2000", 24, "1000-1023"}, /* CPUs beyond our limit are not used */
        {"1024,999999", 0, ""},
        {"0-999999", 1024, "0-1023"},
    };
    static const char *const bad[] = {
        ",",    "0,",    "0,\n",    ",0",        "-1",
        "0-",   "5-3",   "a",       "0x3",       "1 2",
        "1, 2", "0-3-5", "1234567", "0-1000000", "1:2",
        "0;1",  "0--1",  "0,,1",    "+1",        "18446744073709551616"};
    struct vx_numa_set set;
    char again[256];
    for (size_t i = 0; i < VX_COUNT(good); i++) {
        ck_assert_msg(vx_numa_parse(good[i].text, &set, &why), "%s", good[i].text);
        ck_assert_int_eq(vx_numa_count(&set), good[i].count);
        print_set(&set, again);
        ck_assert_str_eq(again, good[i].again);
    }
    for (size_t i = 0; i < VX_COUNT(bad); i++) {
        why.text[0] = '\0';
        ck_assert_msg(!vx_numa_parse(bad[i], &set, &why), "%s", bad[i]);
        ck_assert_ptr_nonnull(strstr(why.text, "expected a list"));
        ck_assert_int_eq(vx_numa_count(&set), 0);
        ck_assert(!vx_numa_parse(bad[i], &set, NULL));
    }
    ck_assert(!vx_numa_has(&set, -1));
    ck_assert(!vx_numa_has(&set, VX_NUMA_CPUS_MAX));
}
END_TEST

START_TEST(test_bus)
{
    static const char *const nowhere[] = {"", "ffff:ff:1f.7", "../../../cpu",
                                          "a/../0000:00:00.0", "."};
    char longest[400];
    for (size_t i = 0; i < VX_COUNT(nowhere); i++)
        ck_assert_int_eq(vx_numa_of_pci(nowhere[i]), -1);
    memset(longest, 'a', sizeof longest - 1);
    longest[sizeof longest - 1] = '\0';
    ck_assert_int_eq(vx_numa_of_pci(longest), -1);
}
END_TEST

static bool one_node(void)
{
    u64 nodes = vx_numa_nodes();
    ck_assert(nodes != 0);
    return !(nodes & (nodes - 1));
}

START_TEST(test_machine)
{
    struct vx_numa_set cpus;
    u64 nodes = vx_numa_nodes();
    i32 found = 0;
    for (i32 node = 0; node < VX_NUMA_NODES_MAX; node++)
        if (nodes >> node & 1 && vx_numa_cpus(node, &cpus, &why))
            found += vx_numa_count(&cpus);
    cpu_set_t may;
    ck_assert_int_eq(sched_getaffinity(0, sizeof may, &may), 0);
    /* A machine that shows no nodes shows no CPUs of them either. */
    ck_assert(!found || found >= CPU_COUNT(&may));
    ck_assert(!vx_numa_cpus(-1, &cpus, &why));
    ck_assert(!vx_numa_cpus(100000, &cpus, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "node 100000"));
    ck_assert_int_eq(vx_numa_count(&cpus), 0);
}
END_TEST

/* On any machine: the thread can run afterwards, on no more CPUs than before. */
static void *bind_everywhere(void *context)
{
    cpu_set_t before, after;
    (void)context;
    for (i32 node = -1; node <= VX_NUMA_NODES_MAX; node++) {
        ck_assert_int_eq(sched_getaffinity(0, sizeof before, &before), 0);
        why.text[0] = '\0';
        bool bound = vx_numa_bind_thread(node, &why);
        ck_assert_int_eq(sched_getaffinity(0, sizeof after, &after), 0);
        ck_assert_int_gt(CPU_COUNT(&after), 0);
        if (bound) {
            struct vx_numa_set cpus;
            ck_assert(vx_numa_cpus(node, &cpus, &why));
            for (i32 i = 0; i < VX_NUMA_CPUS_MAX; i++)
                if (CPU_ISSET((size_t)i, &after)) ck_assert(vx_numa_has(&cpus, i));
        } else {
            ck_assert(CPU_EQUAL(&before, &after));
            ck_assert_uint_gt(strlen(why.text), 0);
        }
        if (one_node()) ck_assert(!bound);
    }
    return NULL;
}

START_TEST(test_bind)
{
    pthread_t thread;
    ck_assert_int_eq(pthread_create(&thread, NULL, bind_everywhere, NULL), 0);
    ck_assert_int_eq(pthread_join(thread, NULL), 0);
    if (!one_node()) return;
    ck_assert(!vx_numa_bind_thread(0, &why));
    ck_assert_ptr_nonnull(strstr(why.text, "one NUMA node"));
}
END_TEST

/* Memory that is requested on a node exists and can be written, wherever it lies. */
START_TEST(test_memory)
{
    const size_t bytes = 1 << 20;
    u64 nodes = vx_numa_nodes();
    i32 first = __builtin_ctzll(nodes);
    u8 *memory =
        mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    ck_assert_ptr_ne(memory, MAP_FAILED);
    bool preferred = vx_numa_prefer(memory, bytes / 2, first, &why);
    if (one_node()) {
        ck_assert(!preferred);
        ck_assert_ptr_nonnull(strstr(why.text, "one NUMA node"));
    }
    bool spread = vx_numa_interleave(memory + bytes / 2, bytes / 2, nodes, &why);
    if (one_node()) ck_assert(!spread);
    if (!spread) ck_assert_uint_gt(strlen(why.text), 0);
    memset(memory, 7, bytes);
    size_t others = 0;
    for (size_t i = 0; i < bytes; i++) others += memory[i] != 7;
    ck_assert_uint_eq(others, 0);
    ck_assert(!vx_numa_prefer(memory, bytes, -1, &why));
    ck_assert(!vx_numa_prefer(memory, bytes, VX_NUMA_NODES_MAX, &why));
    ck_assert(!vx_numa_interleave(memory, bytes, 0, &why));
    if (nodes != UINT64_MAX) {
        ck_assert(!vx_numa_interleave(memory, bytes, ~nodes, &why));
        ck_assert_ptr_nonnull(strstr(why.text, "expected nodes of"));
    }
    (void)munmap(memory, bytes);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("numa");
    TCase *tests = tcase_create("numa");
    tcase_add_test(tests, test_lists);
    tcase_add_test(tests, test_bus);
    tcase_add_test(tests, test_machine);
    tcase_add_test(tests, test_bind);
    tcase_add_test(tests, test_memory);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_ENV);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
