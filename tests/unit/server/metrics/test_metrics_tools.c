/* metrics: how tools read the text - perf_analyzer's own expression finds the GPU's
 * numbers, and promtool reports nothing about our names.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#define _GNU_SOURCE
#include "server/http/http.h"
#include "tests/unit/server/admin/admin_sample.h"

#include <check.h>
#include <regex.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static struct sample sample;
static char text[VX_HTTP_BODY_BYTES_MAX];

static void render(void)
{
    size_t length = 0;
    ck_assert(!vx_metrics_render(&sample.sources, text, sizeof text, &length).fault);
}

/* The expression of perf_analyzer's metrics_manager, verbatim except for the class of
 * digits; it must read the number that we mean. */
static f64 as_perf_analyzer(const char *name, const char *uuid)
{
    char pattern[256], number[64];
    snprintf(pattern, sizeof pattern,
             "\n%s\\{gpu_uuid\\=\"([^\"]+)\"\\} ([0-9]+\\.?[0-9]*)", name);
    regex_t regex;
    regmatch_t found[3];
    ck_assert_int_eq(regcomp(&regex, pattern, REG_EXTENDED), 0);
    ck_assert_msg(!regexec(&regex, text, 3, found, 0), "no %s", name);
    ck_assert_int_eq(found[1].rm_eo - found[1].rm_so, (int)strlen(uuid));
    ck_assert(!strncmp(text + found[1].rm_so, uuid, strlen(uuid)));
    ck_assert_int_eq(text[found[2].rm_eo], '\n'); /* the whole number was read */
    ck_assert(regexec(&regex, text + found[0].rm_eo, 3, found, 0) == REG_NOMATCH);
    snprintf(number, sizeof number, "%.*s", (int)(found[2].rm_eo - found[2].rm_so),
             text + found[2].rm_so);
    regfree(&regex);
    return strtod(number, NULL);
}

START_TEST(gpus_are_said_as_perf_analyzer_reads_them)
{
    static const char uuid[] = SAMPLE_UUID;
    struct vx_gpu_stats *gpu = &sample.workers[0].stats.gpu;
    sample.workers[1].stats.gpu = *gpu; /* on a second worker: reported once */
    sample.workers[1].up = true;
    render();
    ck_assert_double_eq(as_perf_analyzer("nv_gpu_utilization", uuid), 0.07);
    ck_assert_double_eq(as_perf_analyzer("nv_gpu_power_usage", uuid), 124.411);
    ck_assert_double_eq(as_perf_analyzer("nv_gpu_power_limit", uuid), 700);
    ck_assert_double_eq(as_perf_analyzer("nv_gpu_memory_used_bytes", uuid), 552402944);
    ck_assert_double_eq(as_perf_analyzer("nv_gpu_memory_total_bytes", uuid),
                        150109880320);
    ck_assert_double_eq(as_perf_analyzer("nv_energy_consumption", uuid), 2956908000.123);
    /* Without NVML only the driver's numbers are there. */
    gpu->utilization_known = gpu->power_known = false;
    sample.workers[1].up = false;
    render();
    ck_assert_double_eq(as_perf_analyzer("nv_gpu_memory_used_bytes", uuid), 552402944);
    ck_assert_ptr_null(strstr(text, "nv_gpu_utilization"));
    ck_assert_ptr_null(strstr(text, "nv_gpu_power"));
    ck_assert_ptr_null(strstr(text, "nv_energy"));
    sample.workers[0].up = false; /* a number that is not measured is not reported */
    render();
    ck_assert_ptr_null(strstr(text, "gpu_uuid"));
}
END_TEST

/* promtool's findings about names and labels that are Triton's own. */
static bool promtool_may_say(const char *line)
{
    static const char *const findings[] = {
        "counter metrics should have \"_total\" suffix",
        "use base unit \"seconds\" instead of",
        "metric names should not contain abbreviated units",
        "non-histogram and non-summary metrics should not have \"_count\" suffix",
    };
    for (size_t i = 0; i < VX_COUNT(findings); i++)
        if (!strncmp(line, "nv_", 3) && strstr(line, findings[i])) return true;
    return false;
}

START_TEST(promtool_agrees)
{
    const char *tool = "build/tools/promtool"; /* where deploy/install-deps puts it */
    if (!system("command -v promtool >/dev/null 2>&1")) tool = "promtool";
    if (*tool == 'b' && access(tool, X_OK)) {
        fprintf(stderr, "SKIPPED promtool_agrees: no promtool on this machine "
                        "(deploy/install-deps gets it)\n");
        return;
    }
    render();
    char path[] = "/tmp/vx_metrics_XXXXXX";
    int fd = mkstemp(path);
    ck_assert_int_eq(write(fd, text, strlen(text)), (ssize_t)strlen(text));
    close(fd);
    char command[128];
    snprintf(command, sizeof command, "%s check metrics <%s 2>&1", tool, path);
    FILE *said = popen(command, "r");
    ck_assert_ptr_nonnull(said);
    char line[512];
    int complaints = 0, forgiven = 0;
    while (fgets(line, sizeof line, said)) {
        if (promtool_may_say(line)) {
            forgiven++;
            continue;
        }
        fprintf(stderr, "promtool: %s", line);
        complaints++;
    }
    int status = pclose(said);
    unlink(path);
    ck_assert_int_eq(complaints, 0);
    /* 3: it read the text and has findings.  With any other code the tool did not run. */
    ck_assert_msg(WIFEXITED(status) && WEXITSTATUS(status) == (forgiven ? 3 : 0),
                  "%s ended with %d after %d findings", command, status, forgiven);
}
END_TEST

static void setup(void)
{
    sample_open(&sample);
}

static void teardown(void)
{
    sample_close(&sample);
}

int main(void)
{
    Suite *suite = suite_create("metrics_tools");
    TCase *tests = tcase_create("metrics_tools");
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_set_timeout(tests, 20);
    tcase_add_test(tests, gpus_are_said_as_perf_analyzer_reads_them);
    tcase_add_test(tests, promtool_agrees);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed != 0;
}
