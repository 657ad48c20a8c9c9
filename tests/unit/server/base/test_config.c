/* config: which settings are accepted, what is refused with which sentence, and that
 * --help has every setting.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/base/config.h"

#include <check.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define ARGUMENTS_MAX 12

static struct vx_config config;
static struct vx_why why;

static vx_status parse(const char *const *arguments)
{
    static char copies[ARGUMENTS_MAX][2 * VX_CONFIG_TEXT_BYTES];
    char *pointers[ARGUMENTS_MAX];
    int count = 0;
    for (; arguments[count]; count++) {
        ck_assert_int_lt(count, ARGUMENTS_MAX);
        snprintf(copies[count], sizeof copies[count], "%s", arguments[count]);
        pointers[count] = copies[count];
    }
    why.text[0] = '\0';
    return vx_config_parse(count, pointers, &why, &config);
}
#define PARSE(...) parse((const char *const[]){__VA_ARGS__, NULL})

/* Writes a configuration file and returns its path; the file is deleted with the
 * test's directory. */
static const char *file_with(const char *text, size_t length)
{
    static char path[64];
    snprintf(path, sizeof path, "/tmp/vx_config_XXXXXX");
    int fd = mkstemp(path);
    ck_assert_int_ge(fd, 0);
    ck_assert_int_eq(write(fd, text, length), (ssize_t)length);
    close(fd);
    return path;
}

START_TEST(nothing_said_is_defaults)
{
    struct vx_config standard;
    vx_config_defaults(&standard);
    ck_assert(!vx_config_parse(0, NULL, &why, &config).fault);
    ck_assert_int_eq(memcmp(&config, &standard, sizeof config), 0);
    ck_assert_str_eq(config.grpc, "127.0.0.1:8001");
    ck_assert_str_eq(config.http, "127.0.0.1:8002");
    ck_assert_int_eq(config.queue_max, 512);
    ck_assert(!config.access_log);
    ck_assert_str_eq(config.log_format, "text");
    ck_assert_int_eq(vx_config_log_level(&config), VX_LOG_INFO);
}
END_TEST

START_TEST(flags_in_every_spelling)
{
    ck_assert(!PARSE("--grpc", "[::1]:0", "--queue-max=7", "--access-log").fault);
    ck_assert_str_eq(config.grpc, "[::1]:0");
    ck_assert_int_eq(config.queue_max, 7);
    ck_assert(config.access_log);
    ck_assert(!PARSE("--queue_max", "8", "--access-log", "--no-access-log").fault);
    ck_assert_int_eq(config.queue_max, 8);
    ck_assert(!config.access_log);
    ck_assert(
        !PARSE("--access-log=true", "--log-level=debug", "--queue-max=1", "--queue-max=2")
             .fault);
    ck_assert(config.access_log);
    ck_assert_int_eq(config.queue_max, 2);
    ck_assert_int_eq(vx_config_log_level(&config), VX_LOG_DEBUG);
    ck_assert(!PARSE("--repository=", "--ready-file=a=b c").fault);
    ck_assert_str_eq(config.repository, "");
    ck_assert_str_eq(config.ready_file, "a=b c");
}
END_TEST

static const struct {
    const char *written;
    i64 bytes;
} sizes[] = {
    {"16777216", 16777216}, {"16M", 16777216},        {"16384K", 16777216},
    {"3GiB", 3221225472},   {"1T", INT64_C(1) << 40}, {"1023GiB", INT64_C(1023) << 30},
};

START_TEST(sizes_have_suffixes)
{
    char flag[64];
    snprintf(flag, sizeof flag, "--arena-bytes=%s", sizes[_i].written);
    ck_assert_msg(!PARSE(flag).fault, "%s", why.text);
    ck_assert_int_eq(config.arena_bytes, sizes[_i].bytes);
}
END_TEST

START_TEST(times_have_units)
{
    ck_assert(
        !PARSE("--grace-ms=5s", "--drain-ms", "250", "--restart-ms-max=20000us").fault);
    ck_assert_int_eq(config.grace_ms, 5000);
    ck_assert_int_eq(config.drain_ms, 250);
    ck_assert_int_eq(config.restart_ms_max, 20);
}
END_TEST

static const struct {
    const char *arguments[3];
    const char *sentence; /* part of it */
} refused[] = {
    {{"--grce-ms=3"}, "unknown setting '--grce-ms=3'; the nearest is --grace-ms"},
    {{"--no-grpc"}, "unknown setting '--no-grpc'; the nearest is --"},
    {{"--no-access-log=true"},
     "unknown setting '--no-access-log=true'; the nearest is --access-log"},
    {{"--confg=x"}, "unknown setting '--confg=x'; the nearest is --config (--help"},
    {{"--zzzzzzzzzz"}, "unknown setting '--zzzzzzzzzz' (--help lists all)"},
    {{"--rgpc", "x"},
     "unknown setting '--rgpc'; the nearest is --grpc"}, /* a swap counts as one typo */
    {{"--arena-bytes", "4GB"},
     "--arena-bytes: expected a whole number of bytes from 16M to 1T, with K, KiB, M, "
     "MiB, G, GiB, T, TiB or no suffix, got '4GB'"},
    {{"serve"}, "expected a setting such as --grpc, got 'serve'"},
    {{"--"}, "expected a setting such as --grpc, got '--'"},
    {{"-v"}, "expected a setting such as --grpc, got '-v'"},
    {{"--=3"}, "unknown setting"},
    {{"--access-log", "true"}, "got 'true'"},
    {{"--grpc"}, "--grpc: expected a value (list) after it, got nothing"},
    {{"--grpc", "--http=x"},
     "--grpc: expected a value (list) after it, got another setting"},
    {{"--config"}, "--config: expected a value (path) after it, got nothing"},
    {{"--config=a", "--config=b"}, "--config: expected one file, got 'a' and 'b'"},
    {{"--config=/nowhere/x.json"},
     "--config: expected a file that can be read, got '/nowhere/x.json'"},
    {{"--config=/"}, "--config: expected a file that can be read, got '/'"},
    {{"--queue-max="},
     "--queue-max: expected a whole number of requests from 1 to 65536, got ''"},
    {{"--queue-max=0"}, "from 1 to 65536, got '0'"},
    {{"--queue-max=65537"}, "got '65537'"},
    {{"--queue-max=-5"}, "got '-5'"},
    {{"--queue-max=1e3"}, "got '1e3'"},
    {{"--queue-max= 1"}, "got ' 1'"},
    {{"--queue-max=0x10"}, "got '0x10'"},
    {{"--queue-max=1K"}, "got '1K'"},
    {{"--queue-max=99999999999999999999"}, "got '99999999999999999999'"},
    {{"--arena-bytes=9223372036854775807K"}, "got '9223372036854775807K'"},
    {{"--arena-bytes=20MB"}, "got '20MB'"},
    {{"--grace-ms=1500us"},
     "--grace-ms: expected a whole number of ms from 0 to 600s, with us, ms, s or no "
     "suffix, got '1500us'"},
    {{"--grace-ms=1h"}, "got '1h'"},
    {{"--access-log=yes"}, "--access-log: expected true or false, got 'yes'"},
    {{"--log-level=warning"},
     "--log-level: expected debug|info|warn|error, got 'warning'"},
    {{"--tune=on"}, "--tune: expected table|auto|all, got 'on'"},
    {{"--algorithm=implicit-split"}, "got 'implicit-split'"},
    {{"--kernel-cache-bytes=1M"},
     "--kernel-cache-bytes: expected a whole number of bytes from 16M to 1T, got '1M'"},
    {{"--log-level=inf"}, "got 'inf'"},
    {{"--repository=a", "--repository=b"},
     "--repository: expected it once, got 'a' and 'b'"},
    {{"--load-model=a,b", "--load-model=c"},
     "--load-model: expected it once, with names separated by commas, got 'a,b' and 'c'"},
    {{"--log-level="}, "got ''"},
    {{"--log-format=text|json"}, "got 'text|json'"},
};

START_TEST(bad_arguments_are_refused)
{
    vx_status st = parse(refused[_i].arguments);
    ck_assert(st.fault);
    ck_assert_msg(strstr(why.text, refused[_i].sentence) != NULL, "%s", why.text);
}
END_TEST

static const struct {
    const char *arguments[4];
    const char *sentence; /* NULL: nothing is wrong */
} together[] = {
    {{NULL}, NULL},
    {{"--repository-poll-ms=1s"},
     "--repository-poll-ms has no effect without --model-control poll"},
    {{"--repository-poll-ms=15s"}, "--repository-poll-ms has"}, /* the default itself */
    {{"--repository-poll-ms=1s", "--model-control=explicit"}, "--repository-poll-ms has"},
    {{"--repository-poll-ms=1s", "--model-control=poll"}, NULL},
    {{"--client-shm-bytes=1G"},
     "--client-shm-bytes has no effect without --client-shm unix or local"},
    {{"--client-shm-bytes=1G", "--client-shm=unix"}, NULL},
    {{"--tune=auto"}, "--tune has no effect without a GPU in --device"},
    {{"--device=cpu", "--gpu-driver=/x"}, "--gpu-driver has no effect without a GPU in"},
    {{"--algorithm=masked"}, "--algorithm has no effect without a GPU in --device"},
    {{"--device=auto", "--tune=auto", "--algorithm=masked"}, NULL},
    {{"--kernel-cache-bytes=1G", "--kernel-cache="},
     "--kernel-cache-bytes has no effect without a directory as --kernel-cache"},
    {{"--worker-seccomp=on", "--in-process"}, "--worker-seccomp has no effect without"},
    {{"--worker-seccomp=on"}, NULL},
    {{"--kernel-cache-bytes=1G"}, NULL}, /* it has one by default */
    {{"--otlp-ratio=1"}, "--otlp-ratio has no effect without --otlp-endpoint"},
    {{"--otlp-resource=a=b"}, "--otlp-resource has no effect without --otlp-endpoint"},
    {{"--otlp-delay-ms=1s"}, "--otlp-delay-ms has no effect without --otlp-endpoint"},
    {{"--otlp-timeout-ms=1s"}, "--otlp-timeout-ms has no effect without --otlp-endpoint"},
    {{"--otlp-timeout-ms=1s", "--otlp-endpoint=http://c", "--otlp-ratio=0.1"}, NULL},
    {{"--load-model=caf\xc3\xa9", "--placement=caf\xc3\xa9=cpu"}, NULL},
    {{"--load-model=a,b\xff"}, "--load-model: expected names in UTF-8, got 'a,b?'"},
    {{"--placement=b\xc3=cpu"}, "--placement: expected names in UTF-8, got 'b?=cpu'"},
};

START_TEST(settings_that_another_makes_meaningless_are_refused)
{
    ck_assert(!parse(together[_i].arguments).fault);
    vx_status st = vx_config_check(&config, &why);
    ck_assert_int_eq(st.fault != NULL, together[_i].sentence != NULL);
    if (st.fault)
        ck_assert_msg(strstr(why.text, together[_i].sentence) == why.text, "%s",
                      why.text);
}
END_TEST

START_TEST(what_a_file_says_is_said)
{
    const char *path = file_with("{\"repository_poll_ms\": \"1s\"}", 28);
    ck_assert(!PARSE("--config", path).fault);
    unlink(path);
    ck_assert(vx_config_check(&config, &why).fault);
    ck_assert(config.said.repository_poll_ms && !config.said.load_model);
}
END_TEST

START_TEST(long_text_is_refused)
{
    char flag[VX_CONFIG_TEXT_BYTES + 16] = "--grpc=";
    size_t prefix = strlen(flag);
    memset(flag + prefix, 'x', VX_CONFIG_TEXT_BYTES - 1);
    ck_assert(!PARSE(flag).fault);
    ck_assert_uint_eq(strlen(config.grpc), VX_CONFIG_TEXT_BYTES - 1);
    flag[prefix + VX_CONFIG_TEXT_BYTES - 1] = 'x';
    ck_assert(PARSE(flag).fault);
    ck_assert_str_eq(why.text, "--grpc: expected at most 1023 bytes, got 1024");
}
END_TEST

START_TEST(file_binds_under_flags)
{
    static const char text[] =
        "{\"grace_ms\": \"7s\", \"drain_ms\": 12, \"access_log\": true,\n"
        " \"grpc\": \"0.0.0.0:1\", \"http\": \"h:2\", \"log_format\": \"json\"}";
    const char *path = file_with(text, strlen(text));
    vx_status st =
        PARSE("--grpc=x:9", "--config", path, "--drain-ms=5s", "--no-access-log");
    ck_assert_msg(!st.fault, "%s", why.text);
    unlink(path);
    ck_assert_str_eq(config.grpc, "x:9"); /* set before --config: the flag still wins */
    ck_assert_str_eq(config.http, "h:2");
    ck_assert_int_eq(config.grace_ms, 7000);
    ck_assert_int_eq(config.drain_ms, 5000);
    ck_assert(!config.access_log);
    ck_assert_str_eq(config.log_format, "json");
    ck_assert_int_eq(config.queue_max, 512);
}
END_TEST

static const struct {
    const char *text, *sentence;
} bad_files[] = {
    {"", "line 1, column 1"},
    {"[]", "expected an object"},
    {"{\"grace_ms\": 1", "line 1"},
    {"{\n  \"grce_ms\": 1}",
     "line 2, column 14: expected the name of a setting, got 'grce_ms'; the "
     "nearest is 'grace_ms'"},
    {"{\"grace-ms\": 1}", "got 'grace-ms'; the nearest is 'grace_ms'"},
    {"{\"--gracems\": 1}", "got '--gracems'; the nearest is 'grace_ms'"},
    {"{\"swapped_grpc\": 1}", "expected the name of a setting, got 'swapped_grpc'"},
    {"{\"config\": \"x\"}", "expected the name of a setting, got 'config'"},
    {"{\"grace_ms\": 2.5}", "expected an integer, got 2.5"},
    {"{\"grace_ms\": true}", "expected an integer"},
    {"{\"grace_ms\": \"2h\"}", "grace_ms: expected a whole number of ms from 0 to 600s, "
                               "with us, ms, s or no suffix, got '2h'"},
    {"{\"grace_ms\": 600001}",
     "grace_ms: expected a whole number of ms from 0 to 600s, got '600001'"},
    {"{\"access_log\": \"true\"}", "expected true or false"},
    {"{\"access_log\": 1}", "expected true or false"},
    {"{\"grpc\": 8001}", "expected a text"},
    {"{\"otlp_ratio\": true}", "\"otlp_ratio\": expected a number, got true"},
    {"{\"log_level\": \"loud\"}",
     "log_level: expected debug|info|warn|error, got 'loud'"},
    {"{\"grace_ms\": 1, \"grace_ms\": 2}", "grace_ms"},
};

START_TEST(bad_files_are_refused)
{
    const char *path = file_with(bad_files[_i].text, strlen(bad_files[_i].text));
    vx_status st = PARSE("--config", path);
    unlink(path);
    ck_assert(st.fault);
    ck_assert_msg(!strncmp(why.text, path, strlen(path)), "names the file: %s", why.text);
    ck_assert_msg(strstr(why.text, bad_files[_i].sentence) != NULL, "%s", why.text);
}
END_TEST

START_TEST(large_file_is_refused)
{
    static char text[VX_CONFIG_FILE_BYTES_MAX + 1];
    memset(text, ' ', sizeof text);
    memcpy(text, "{}", 2);
    const char *path = file_with(text, sizeof text - 1);
    ck_assert_msg(!PARSE("--config", path).fault, "%s", why.text);
    unlink(path);
    path = file_with(text, sizeof text);
    ck_assert(PARSE("--config", path).fault);
    unlink(path);
    ck_assert(strstr(why.text, "expected at most 65536 bytes"));
}
END_TEST

START_TEST(help_has_every_setting)
{
    char help[32768];
    size_t needed = vx_config_help(help, sizeof help);
    ck_assert_ptr_nonnull(strstr(help, "times take us, ms and s: "));
    ck_assert_uint_eq(needed, strlen(help) + 1);
    ck_assert_uint_le(needed,
                      sizeof help / 2); /* main.c shows it from a buffer of this size */
    char flag[64];
#define VX_GROUP(title_) ck_assert(strstr(help, "\n" title_ "\n"));
#define VX_NEEDS(name_)                                                                  \
    snprintf(flag, sizeof flag, "  --%s", #name_);                                       \
    for (char *c = flag; *c; c++)                                                        \
        if (*c == '_') *c = '-';                                                         \
    ck_assert_msg(strstr(help, flag) != NULL, "%s", flag);
#define VX_TEXT(name_, default_, unit_, help_)            VX_NEEDS(name_)
#define VX_I64(name_, default_, min_, max_, unit_, help_) VX_NEEDS(name_)
#define VX_FLAG(name_, default_, help_)                   VX_NEEDS(name_)
#define VX_ENUM(name_, default_, choices_, help_)         VX_NEEDS(name_)
#include "server/base/config.def"
    for (char *line = help; *line; line += strcspn(line, "\n") + 1)
        ck_assert_msg(strcspn(line, "\n") <= 100, "%.110s", line);
    ck_assert(strstr(help, "[2G; 16M to 1T]"));
    ck_assert(strstr(help, "[2s; 0 to 600s]"));
    char small[100];
    memset(small, 'x', sizeof small);
    ck_assert_uint_eq(vx_config_help(small, sizeof small), needed);
    ck_assert_uint_lt(strlen(small), sizeof small);
    ck_assert_uint_eq(vx_config_help(NULL, 0), needed);
}
END_TEST

START_TEST(settings_of_gpus)
{
    ck_assert(!PARSE("--device=cuda:0,cuda:1", "--gpu-driver=/d/libcuda.so.1",
                     "--gpu-compiler", "libnvrtc.so.13",
                     "--kernel-cache=", "--kernel-cache-bytes=2G", "--tune=auto",
                     "--tune-table=t.tune", "--algorithm=masked_split")
                   .fault);
    ck_assert_str_eq(config.device, "cuda:0,cuda:1");
    ck_assert_str_eq(config.gpu_driver, "/d/libcuda.so.1");
    ck_assert_str_eq(config.gpu_compiler, "libnvrtc.so.13");
    ck_assert_str_eq(config.kernel_cache, "");
    ck_assert_int_eq(config.kernel_cache_bytes, INT64_C(2) << 30);
    ck_assert_str_eq(config.tune, "auto");
    ck_assert_str_eq(config.tune_table, "t.tune");
    ck_assert_str_eq(config.algorithm, "masked_split");
    char help[32768];
    vx_config_help(help, sizeof help);
    ck_assert(strstr(help, "|masked_split|")); /* choices are shown as they are written */
}
END_TEST

START_TEST(log_says_only_what_is_unusual)
{
    int fd = memfd_create("log", MFD_CLOEXEC);
    vx_log_init(&(struct vx_log_options){.level = VX_LOG_INFO, .fd = fd}, "test");
    ck_assert(!PARSE("--queue-max=512", "--log-level=info").fault);
    vx_config_log(&config);
    ck_assert_int_eq(lseek(fd, 0, SEEK_END), 0);
    ck_assert(
        !PARSE("--queue-max=511", "--access-log", "--grpc=a b:1", "--log-format=json")
             .fault);
    vx_config_log(&config);
    char text[1024] = "";
    ck_assert_int_gt(pread(fd, text, sizeof text - 1, 0), 0);
    ck_assert_msg(
        strstr(text, " CONFIG process=test grpc=\"a b:1\" queue_max=511 access_log=true "
                     "log_format=json\n") != NULL,
        "%s", text);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("config");
    TCase *tests = tcase_create("config");
    tcase_add_test(tests, nothing_said_is_defaults);
    tcase_add_test(tests, flags_in_every_spelling);
    tcase_add_loop_test(tests, sizes_have_suffixes, 0, (int)VX_COUNT(sizes));
    tcase_add_test(tests, times_have_units);
    tcase_add_loop_test(tests, bad_arguments_are_refused, 0, (int)VX_COUNT(refused));
    tcase_add_loop_test(tests, settings_that_another_makes_meaningless_are_refused, 0,
                        (int)VX_COUNT(together));
    tcase_add_test(tests, what_a_file_says_is_said);
    tcase_add_test(tests, long_text_is_refused);
    tcase_add_test(tests, file_binds_under_flags);
    tcase_add_loop_test(tests, bad_files_are_refused, 0, (int)VX_COUNT(bad_files));
    tcase_add_test(tests, large_file_is_refused);
    tcase_add_test(tests, help_has_every_setting);
    tcase_add_test(tests, settings_of_gpus);
    tcase_add_test(tests, log_says_only_what_is_unusual);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
