/* devices: which names are valid, and which devices `all` and other lists become when a
 * child process has asked the driver.  This program is its own child: as `probe` it
 * answers what the test wants.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/devices/devices.h"

#include <check.h>
#include <dirent.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static struct vx_why why;

/* ------- one name ------- */

static const struct {
    const char *name;
    struct vx_device device;
} good[] = {
    {"cpu", {VX_DEVICE_CPU, 0, 0}},
    {"cuda:0", {VX_DEVICE_CUDA, 0, 0}},
    {"cuda:15", {VX_DEVICE_CUDA, 15, 0}},
    {"hip:0", {VX_DEVICE_HIP, 0, 0}},
    {"hip:15", {VX_DEVICE_HIP, 15, 0}},
    {"fake:0", {VX_DEVICE_FAKE, 0, 0}},
    {"fake:0:lose=1", {VX_DEVICE_FAKE, 0, 1}},
    {"fake:0:lose=2147483647", {VX_DEVICE_FAKE, 0, INT32_MAX}},
};

START_TEST(names_of_one_device)
{
    struct vx_device device;
    ck_assert(!vx_device_parse(good[_i].name, &why, &device).fault);
    ck_assert_int_eq(device.kind, good[_i].device.kind);
    ck_assert_int_eq(device.index, good[_i].device.index);
    ck_assert_int_eq(device.lose_launch, good[_i].device.lose_launch);
}
END_TEST

static const char *const bad[] = {
    "",
    "CPU",
    "cpu0",
    "cpu:0",
    "cuda",
    "auto",
    "cuda:",
    "cuda:-1",
    "cuda:+1",
    "cuda: 1",
    "cuda:1x",
    "cuda:16",
    "cuda:0x1",
    "cuda:99999999999999999999",
    "fake",
    "fake:1",
    "fake:0:lose=",
    "fake:0:lose=0",
    "fake:0:lose=-1",
    "fake:0x",
    "fake:0:",
    "fake:0:lose=1x",
    "fake:0:lose=2147483648",
    "hip",
    "hip:",
    "hip:16",
    "hip:x",
    "hipp:0",
    "hi:0",
};

START_TEST(names_of_none)
{
    struct vx_device device;
    vx_status st = vx_device_parse(bad[_i], &why, &device);
    ck_assert_msg(vx_status_code(st) == VX_CODE_INVALID_ARGUMENT, "'%s'", bad[_i]);
    ck_assert(strstr(why.text, "device: expected cpu, cuda:N, cuda, hip:N, hip or auto"));
    ck_assert(strstr(why.text, bad[_i]));
}
END_TEST

/* ------- the list ------- */

/* `driver` is passed to the child, which answers it: "two", or "two/none" for the drivers
 * of NVIDIA and AMD. */
static vx_status list_of(const char *device, const char *driver,
                         struct vx_device_list *list)
{
    const char *other = strchr(driver, '/');
    static struct vx_config config;
    vx_config_defaults(&config);
    snprintf(config.device, sizeof config.device, "%s", device);
    snprintf(config.gpu_driver, sizeof config.gpu_driver, "%.*s",
             (int)strcspn(driver, "/"), driver);
    snprintf(config.hip_library, sizeof config.hip_library, "%s",
             other ? other + 1 : "none");
    return vx_devices_list(&config, &why, list);
}

static const struct {
    const char *device, *driver, *names; /* separated by spaces */
} lists[] = {
    {"cpu", "unasked", "cpu"},
    {"cpu,cpu", "unasked", "cpu cpu"},
    {"cuda:3,fake:0,cpu", "unasked", "cuda:3 fake:0 cpu"},
    {"cuda", "two", "cuda:0 cuda:1"},
    {"auto", "two", "cuda:0 cuda:1"},
    {"cuda", "none", "cuda:0"},
    {"auto", "none", "cpu"},
    {"auto", "silent", "cpu"},
    {"auto", "rubbish", "cpu"},
    {"auto", "negative", "cpu"},
    {"auto", "crash", "cpu"},
    {"cpu,cuda", "two", "cpu cuda:0 cuda:1"},
    {"cpu,hip:3", "unasked/unasked", "cpu hip:3"},
    {"hip", "unasked/two", "hip:0 hip:1"},
    {"hip", "unasked/none", "hip:0"},
    {"hip", "unasked/crash", "hip:0"},
    {"auto", "two/two", "cuda:0 cuda:1 hip:0 hip:1"},
    {"auto", "none/two", "hip:0 hip:1"},
    {"auto", "crash/two", "hip:0 hip:1"},
    {"auto", "two/crash", "cuda:0 cuda:1"},
    {"auto", "crash/rubbish", "cpu"},
    {"hip,cuda,cpu", "two/two", "hip:0 hip:1 cuda:0 cuda:1 cpu"},
};

START_TEST(words_for_many)
{
    struct vx_device_list list;
    char names[1024] = "";
    vx_status st = list_of(lists[_i].device, lists[_i].driver, &list);
    ck_assert_msg(!st.fault, "%s", why.text);
    for (i32 i = 0; i < list.count; i++) {
        strcat(names, i ? " " : "");
        strcat(names, list.names[i]);
    }
    ck_assert_str_eq(names, lists[_i].names);
    /* The child was waited for. */
    ck_assert_int_eq(waitpid(-1, NULL, WNOHANG), -1);
    ck_assert_int_eq(errno, ECHILD);
}
END_TEST

static const struct {
    const char *device, *driver, *sentence;
} refused[] = {
    {"", "unasked", "got ''"},
    {"cpu,", "unasked", "got ''"},
    {"cpu, cpu", "unasked", "got ' cpu'"},
    {"gpu", "unasked", "got 'gpu'"},
    {"cpu,cuda:abc", "unasked", "got 'cuda:abc'"},
    {"0123456789012345678901234567890123456789", "unasked", "got '0123456789"},
    {"cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu,cpu", "unasked",
     "expected at most 16 devices, got more"},
    {"cuda", "many", "expected at most 16 devices, got more"},
    {"hip", "unasked/many", "expected at most 16 devices, got more"},
    {"cpu,hip:abc", "unasked/unasked", "got 'hip:abc'"},
};

START_TEST(lists_that_are_refused)
{
    struct vx_device_list list;
    vx_status st = list_of(refused[_i].device, refused[_i].driver, &list);
    ck_assert_int_eq(vx_status_code(st), VX_CODE_INVALID_ARGUMENT);
    ck_assert_msg(strstr(why.text, refused[_i].sentence) != NULL, "%s", why.text);
}
END_TEST

static int descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    ck_assert_ptr_nonnull(folder);
    while (readdir(folder)) count++;
    closedir(folder);
    return count;
}

START_TEST(asking_leaves_no_descriptor)
{
    struct vx_device_list list;
    ck_assert(!list_of("auto", "two", &list).fault);
    int before = descriptors();
    for (int i = 0; i < 5; i++) ck_assert(!list_of("auto", "two", &list).fault);
    ck_assert_int_eq(descriptors(), before);
}
END_TEST

/* ------- memory nodes ------- */

static const struct {
    const char *vendor, *class, *node; /* NULL: no such file */
    u64 nodes;
} gpus[] = {
    {"0x10de\n", "0x030200\n", "1\n", 2},
    {"0x10de\n", "0x030000\n", "0\n", 1},
    {"0x10de\n", "0x030200\n", "63\n", UINT64_C(1) << 63},
    {"0x10de\n", "0x030200\n", "64\n", 0},
    {"0x10de\n", "0x030200\n", "-1\n", 0},
    {"0x10de\n", "0x020700\n", "1\n", 0},
    {"0x8086\n", "0x030000\n", "1\n", 0},
    {"0x1002\n", "0x038000\n", "1\n", 2},
    {"0x1002\n", "0x120000\n", "2\n", 4}, /* MI300X */
    {"0x10de\n", "0x120000\n", "2\n", 0},
    {"0x1002\n", "0x040300\n", "1\n", 0}, /* its sound */
    {"0x10de\n", "0x030200\n", NULL, 0},
    {"0x10de\n", NULL, "1\n", 0},
    {NULL, "0x030200\n", "1\n", 0},
    {"", "", "", 0},
    {"many\n", "words\n", "here\n", 0},
};

static void file_write(const char *folder, const char *name, const char *text)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (!text) return;
    FILE *file = fopen(path, "w");
    ck_assert_ptr_nonnull(file);
    fputs(text, file);
    fclose(file);
}

static void file_remove(const char *folder, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    remove(path);
}

/* Two folders like the system's: the one under test, and an empty one beside it. */
START_TEST(nodes_of_gpus)
{
    char folder[] = "/tmp/voxeld-test-pci-XXXXXX", device[64], other[64];
    ck_assert_ptr_nonnull(mkdtemp(folder));
    snprintf(device, sizeof device, "%s/0000:3b:00.0", folder);
    snprintf(other, sizeof other, "%s/0000:00:00.0", folder);
    ck_assert(!mkdir(device, 0700) && !mkdir(other, 0700));
    file_write(device, "vendor", gpus[_i].vendor);
    file_write(device, "class", gpus[_i].class);
    file_write(device, "numa_node", gpus[_i].node);
    u64 nodes = vx_devices_gpu_nodes(folder);
    file_remove(device, "vendor");
    file_remove(device, "class");
    file_remove(device, "numa_node");
    ck_assert(!rmdir(device) && !rmdir(other) && !rmdir(folder));
    ck_assert_uint_eq(nodes, gpus[_i].nodes);
    ck_assert_uint_eq(vx_devices_gpu_nodes(folder), 0); /* not there any more */
}
END_TEST

START_TEST(lists_with_a_gpu)
{
    ck_assert(vx_devices_has_gpu(&(struct vx_device_list){2, {"cpu", "cuda:3"}}));
    ck_assert(vx_devices_has_gpu(&(struct vx_device_list){1, {"hip:0"}}));
    ck_assert(!vx_devices_has_gpu(&(struct vx_device_list){2, {"cpu", "fake:0"}}));
    ck_assert(!vx_devices_has_gpu(&(struct vx_device_list){1, {"cpu", "cuda:3"}}));
}
END_TEST

/* ------- the child ------- */

static const struct {
    const char *driver, *answer;
} answers[] = {
    {"two", "2 \n"}, {"many", "17 \n"},      {"none", "0 no driver: the test has none\n"},
    {"silent", ""},  {"rubbish", "what?\n"}, {"negative", "-3 \n"},
};

/* A probe for one vendor must come with that vendor's library. */
static int child(const char *device, const char *flag)
{
    const char *wanted =
        strcmp(device, "--device=hip") ? "--gpu-driver=" : "--hip-library=";
    if (strncmp(flag, wanted, strlen(wanted))) return 1;
    const char *driver = flag + strlen(wanted);
    if (!strcmp(driver, "crash")) raise(SIGKILL);
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        if (!strcmp(driver, answers[i].driver)) fputs(answers[i].answer, stdout);
    return 0; /* "unasked" is not in the list: a probe all the same has no answer */
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "probe")) return child(argv[2], argv[3]);
    Suite *suite = suite_create("devices");
    TCase *tests = tcase_create("devices");
    tcase_add_loop_test(tests, names_of_one_device, 0, (int)VX_COUNT(good));
    tcase_add_loop_test(tests, names_of_none, 0, (int)VX_COUNT(bad));
    tcase_add_loop_test(tests, words_for_many, 0, (int)VX_COUNT(lists));
    tcase_add_loop_test(tests, lists_that_are_refused, 0, (int)VX_COUNT(refused));
    tcase_add_test(tests, asking_leaves_no_descriptor);
    tcase_add_loop_test(tests, nodes_of_gpus, 0, (int)VX_COUNT(gpus));
    tcase_add_test(tests, lists_with_a_gpu);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
