/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/process/log.h"
#include "engine/gpu/jit/jit.h"
#include "engine/gpu/jit/texts.h"
#include "tests/support/jit_rig.h"

#include <check.h>
#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct jit_rig rig;

static void setup(void)
{
    jit_rig_open(&rig);
}

static void teardown(void)
{
    jit_rig_close(&rig);
}

static struct vx_jit_wanted scale(i32 tile, enum vx_number type)
{
    return (struct vx_jit_wanted){&scale_spec, &scale_spec.tiles[tile], type};
}

static struct vx_jit_image get(struct vx_jit *jit, const struct vx_jit_wanted *wanted)
{
    struct vx_why why = {""};
    struct vx_jit_image image;
    vx_status status = vx_jit_get(jit, wanted, &why, &image);
    if (status.fault) ck_abort_msg("%s", vx_status_text(status, &why));
    return image;
}

/* The one entry of the cache; "" when there is none. */
static i32 entries(char path[512])
{
    i32 count = 0;
    DIR *folder = opendir(rig.cache);
    path[0] = 0;
    if (!folder) return 0;
    for (const struct dirent *it = readdir(folder); it; it = readdir(folder)) {
        if (it->d_name[0] == '.') continue;
        (void)snprintf(path, 512, "%s/%s", rig.cache, it->d_name);
        count++;
    }
    closedir(folder);
    return count;
}

/* --- turns --- */

/* The text of a kernel's source. */
static const char *text_of(const struct vx_kernel_spec *spec)
{
    char name[64];
    (void)snprintf(name, sizeof name, "kernels/%s", spec->source);
    for (i32 i = 0; i < vx_texts_count; i++)
        if (!strcmp(vx_texts[i].name, name)) return vx_texts[i].data;
    ck_abort_msg("%s: there is no text %s", spec->name, name);
    return "";
}

/* Whether the first statement of a kernel is vx_turn. */
static bool turns_first(const struct vx_kernel_spec *spec)
{
    static const char turn[] = "{\n    vx_turn();\n";
    char name[64];
    (void)snprintf(name, sizeof name, "%s(", spec->name);
    for (const char *at = strstr(text_of(spec), "VX_KERNEL("); at;
         at = strstr(at, "VX_KERNEL(")) {
        /* VX_KERNEL(threads, blocks) name(arguments) {, over one line or two. */
        at = strchr(at, ')') + 1;
        at += strspn(at, " \n");
        if (strncmp(at, name, strlen(name)) != 0) continue;
        return !strncmp(strchr(at, '{'), turn, strlen(turn));
    }
    ck_abort_msg("%s has no kernel %s", spec->source, spec->name);
    return false;
}

/* A launch that begins early may not touch memory before it has waited: on a device the answer
 * would be wrong now and then. */
START_TEST(kernels_wait_before_they_do_anything)
{
    i32 first = 0, count = 0;
    for (const struct vx_kernel_spec *const *it = vx_kernels(); *it; it++, count++) {
        const bool expected = (*it)->turn == VX_TURN_FIRST;
        ck_assert_msg(turns_first(*it) == expected,
                      "%s: vx_turn() %s its first statement", (*it)->name,
                      expected ? "is not" : "is");
        first += expected;
    }
    ck_assert_int_eq(count - first, 3); /* conv_masked, conv_pairs, mlp */
}
END_TEST

/* --- names --- */

START_TEST(test_source_hash)
{
    char first[65], same[65], other[65];
    struct vx_jit *jit = jit_rig_jit(&rig, "fake");
    vx_jit_source_hash(jit, &scale_spec, first);
    vx_jit_close(&jit);
    ck_assert_uint_eq(strlen(first), 64);
    jit_rig_write(&rig, "92_other.h", "/* nobody includes this */\n");
    jit_rig_write(&rig, "91_count.cu", "/* another kernel */\n");
    jit = jit_rig_jit(&rig, "fake");
    vx_jit_source_hash(jit, &scale_spec, same);
    vx_jit_close(&jit);
    ck_assert_str_eq(first, same);
    jit_rig_write(&rig, "90_scale.h", "/* included */\n");
    jit = jit_rig_jit(&rig, "fake");
    vx_jit_source_hash(jit, &scale_spec, other);
    ck_assert_str_ne(first, other);
    /* Texts that are embedded in the binary are found too. */
    vx_jit_source_hash(jit, &count_spec, same);
    vx_jit_close(&jit);
    ck_assert_str_ne(same, other);
}
END_TEST

/* Texts that a compiler reads as the same have one hash: comments and blanks do not count,
 * everything else does. */
START_TEST(test_hash_is_of_code)
{
    static const struct {
        const char *text;
        bool same;
    } texts[] = {
        {"int a = 1; /* one */\n\n  // a line\nchar b[] = \"/* c */\";\n", true},
        {"int a = 1;\nchar b[] = \"/* c */\"; /* and no end", true},
        {"  int\ta = 1;/**/\n/* a\n b */ char b[] =  \"/* c */\";\n", true},
        {"int a = 2;\nchar b[] = \"/* c */\";\n", false},
        {"inta = 1;\nchar b[] = \"/* c */\";\n", false},
        {"int a = 1;\nchar b[] = \"/* d */\";\n", false},
        {"int a = 1;\nchar b[] = \"/*  c */\";\n", false},
        {"int a = 1; char b[] = \"/* c */\";\n", false}, /* a directive would end here */
    };
    char first[65], other[65];
    for (size_t i = 0; i < VX_COUNT(texts); i++) {
        jit_rig_write(&rig, "90_scale.h", texts[i].text);
        struct vx_jit *jit = jit_rig_jit(&rig, "fake");
        vx_jit_source_hash(jit, &scale_spec, i ? other : first);
        vx_jit_close(&jit);
        if (i) ck_assert_msg(!strcmp(first, other) == texts[i].same, "text %zu", i);
    }
}
END_TEST

START_TEST(test_open_refuses)
{
    struct vx_why why = {""};
    struct vx_jit *jit;
    struct vx_jit_options options = {.arch = "fake", .texts = "/nowhere"};
    ck_assert_int_eq(vx_status_code(vx_jit_open(&options, &why, &jit)),
                     VX_CODE_NOT_FOUND);
    ck_assert_ptr_null(jit);
    ck_assert_ptr_nonnull(strstr(why.text, "/nowhere"));
    /* A folder above that of the sources would leave all texts as they are. */
    options.texts = "/proc/self/ns";
    ck_assert_int_eq(vx_status_code(vx_jit_open(&options, &why, &jit)),
                     VX_CODE_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(why.text, "/proc/self/ns"));
    options = (struct vx_jit_options){.arch = ""};
    ck_assert_int_eq(vx_status_code(vx_jit_open(&options, &why, &jit)),
                     VX_CODE_INVALID_ARGUMENT);
    /* A kernel without a text. */
    jit = jit_rig_jit(&rig, "fake");
    struct vx_kernel_spec spec = count_spec;
    struct vx_jit_image image;
    spec.source = "99_none.cu";
    struct vx_jit_wanted wanted = {&spec, NULL, 0};
    ck_assert_int_eq(vx_status_code(vx_jit_get(jit, &wanted, &why, &image)),
                     VX_CODE_NOT_FOUND);
    ck_assert_ptr_nonnull(strstr(why.text, "99_none.cu"));
    vx_jit_close(&jit);
}
END_TEST

START_TEST(test_archs)
{
    static const char *const archs[] = {
        "sm_75",  "sm_80",  "sm_86",  "sm_87",   "sm_89",   "sm_90a", "sm_100",
        "sm_120", "gfx90a", "gfx942", "gfx1100", "gfx1200", "fake"};
    for (size_t i = 0; i < VX_COUNT(archs); i++) {
        const struct vx_caps *caps = vx_arch_caps(archs[i]);
        ck_assert_ptr_nonnull(caps);
        ck_assert_int_gt(caps->processors, 0);
        ck_assert_int_ge(caps->shared_processor, caps->shared_block);
        ck_assert_int_gt(caps->shared_block, 48 << 10);
    }
    ck_assert_int_eq(vx_arch_caps("sm_90a")->arch, 90);
    ck_assert_int_eq(vx_arch_caps("gfx90a")->arch, 90010);
    ck_assert_int_eq(vx_arch_caps("gfx1200")->arch, 120000);
    ck_assert_ptr_null(vx_arch_caps("sm_90"));
    ck_assert_ptr_null(vx_arch_caps(""));
}
END_TEST

/* --- building --- */

struct told {
    i64 calls, done, total;
};

static void on_progress(void *context, i64 done, i64 total)
{
    struct told *told = context;
    if (told->calls) ck_assert_int_eq(told->total, total);
    ck_assert_int_ge(done, told->done);
    told->calls++;
    told->done = done;
    told->total = total;
}

START_TEST(test_build_once_each)
{
    struct vx_jit *jit = jit_rig_jit(&rig, "fake");
    struct vx_jit_wanted wanted[200];
    struct told told = {0};
    const struct vx_progress progress = {on_progress, &told};
    char path[512];
    for (i32 i = 0; i < 200; i++)
        wanted[i] = scale(i % 40, i / 40 % 2 ? VX_NUMBER_F16 : VX_NUMBER_F32);
    ck_assert_ptr_null(vx_jit_build(jit, wanted, 200, &progress, NULL).fault);
    ck_assert_int_eq(told.total, 80);
    ck_assert_int_eq(told.done, 80);
    ck_assert_int_eq(entries(path), 80);
    struct vx_jit_image first = get(jit, &wanted[0]), again = get(jit, &wanted[80]);
    ck_assert_ptr_eq(first.data, again.data);
    ck_assert(!first.from_cache);
    ck_assert_ptr_ne(get(jit, &wanted[1]).data, first.data);
    ck_assert_ptr_ne(get(jit, &wanted[40]).data, first.data);
    /* All are ready: reported at once, and nothing is compiled. */
    told = (struct told){0};
    ck_assert_ptr_null(vx_jit_build(jit, wanted, 200, &progress, NULL).fault);
    ck_assert_int_eq(entries(path), 80);
    vx_jit_close(&jit);
    /* Another process. */
    jit = jit_rig_jit(&rig, "fake");
    ck_assert_ptr_null(vx_jit_build(jit, wanted, 200, NULL, NULL).fault);
    for (i32 i = 0; i < 80; i++) ck_assert(get(jit, &wanted[i]).from_cache);
    vx_jit_close(&jit);
}
END_TEST

/* --- the cache --- */

/* Entry bytes: 56 of header, 16 of log, then the image. */
static const struct {
    const char *what;
    long at;    /* a byte to invert; -1 = none */
    long bytes; /* bytes that remain; -1 = all */
} damages[] = {
    {"magic", 0, -1},
    {"abi", 8, -1},
    {"log length", 12, -1},
    {"image length", 16, -1},
    {"image length, high", 23, -1},
    {"digest", 24, -1},
    {"log", 60, -1},
    {"image", 80, -1},
    {"empty", -1, 0},
    {"half a header", -1, 20},
    {"half an image", -1, 80},
};

START_TEST(test_damage)
{
    char path[512];
    struct vx_jit_wanted wanted = scale(3, VX_NUMBER_F32);
    struct vx_jit *jit = jit_rig_jit(&rig, "fake");
    struct vx_jit_image image = get(jit, &wanted);
    char *good = malloc(image.bytes);
    size_t bytes = image.bytes;
    memcpy(good, image.data, bytes);
    vx_jit_close(&jit);
    ck_assert_int_eq(entries(path), 1);
    struct stat about;
    ck_assert_int_eq(stat(path, &about), 0);
    ck_assert_int_eq(about.st_mode & 0777, 0600);
    ck_assert_int_eq(stat(rig.cache, &about), 0);
    ck_assert_int_eq(about.st_mode & 0777, 0700);

    int file = open(path, O_RDWR);
    u8 byte;
    if (damages[_i].at >= 0) {
        ck_assert_int_eq(pread(file, &byte, 1, damages[_i].at), 1);
        byte ^= 0x40;
        ck_assert_int_eq(pwrite(file, &byte, 1, damages[_i].at), 1);
    }
    if (damages[_i].bytes >= 0) ck_assert_int_eq(ftruncate(file, damages[_i].bytes), 0);
    close(file);
    u64 said = vx_log_count(VX_EVENT_KERNEL_DAMAGED);
    for (i32 round = 0; round < 2; round++) {
        jit = jit_rig_jit(&rig, "fake");
        image = get(jit, &wanted);
        ck_assert_int_eq(image.from_cache, round == 1);
        ck_assert_uint_eq(image.bytes, bytes);
        ck_assert_mem_eq(image.data, good, bytes);
        vx_jit_close(&jit);
    }
    ck_assert_uint_eq(vx_log_count(VX_EVENT_KERNEL_DAMAGED), said + 1);
    ck_assert_int_eq(entries(path), 1);
    free(good);
}
END_TEST

START_TEST(test_directory_of_others)
{
    static const mode_t modes[] = {0777, 0770, 0720, 0702};
    struct vx_why why;
    struct vx_jit *jit;
    struct vx_jit_options options = {.arch = "fake", .directory = rig.cache};
    ck_assert_int_eq(mkdir(rig.cache, 0700), 0);
    for (size_t i = 0; i < VX_COUNT(modes); i++) {
        ck_assert_int_eq(chmod(rig.cache, modes[i]), 0);
        ck_assert_int_eq(vx_status_code(vx_jit_open(&options, &why, &jit)),
                         VX_CODE_FAILED_PRECONDITION);
        ck_assert_ptr_null(jit);
        ck_assert_ptr_nonnull(strstr(why.text, rig.cache));
    }
    ck_assert_int_eq(chmod(rig.cache, 0755), 0);
    ck_assert_ptr_null(vx_jit_open(&options, &why, &jit).fault);
    vx_jit_close(&jit);
    if (geteuid()) return; /* only root gives a directory away */
    ck_assert_int_eq(chown(rig.cache, 12345, 12345), 0);
    ck_assert_int_eq(vx_status_code(vx_jit_open(&options, &why, &jit)),
                     VX_CODE_FAILED_PRECONDITION);
    ck_assert_int_eq(chown(rig.cache, 0, 0), 0);
}
END_TEST

/* A directory that cannot be made or written: everything works, and a warning is logged once. */
START_TEST(test_directory_unusable)
{
    struct vx_jit_options options = {
        .arch = "fake", .directory = "/proc/none/cache", .texts = rig.texts};
    struct vx_jit *jit;
    u64 said = vx_log_count(VX_EVENT_KERNEL_CACHE);
    ck_assert_ptr_null(vx_jit_open(&options, NULL, &jit).fault);
    for (i32 i = 0; i < 5; i++) {
        struct vx_jit_wanted wanted = scale(i, VX_NUMBER_F32);
        ck_assert(!get(jit, &wanted).from_cache);
    }
    vx_jit_close(&jit);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_KERNEL_CACHE), said + 1);
    /* The directory is removed while it is in use: the same. */
    options.directory = rig.cache;
    ck_assert_ptr_null(vx_jit_open(&options, NULL, &jit).fault);
    ck_assert_int_eq(rmdir(rig.cache), 0);
    for (i32 i = 0; i < 5; i++) {
        struct vx_jit_wanted wanted = scale(i, VX_NUMBER_F32);
        ck_assert(!get(jit, &wanted).from_cache);
    }
    vx_jit_close(&jit);
    ck_assert_uint_eq(vx_log_count(VX_EVENT_KERNEL_CACHE), said + 2);
}
END_TEST

START_TEST(test_bound)
{
    char path[512];
    struct stat about;
    struct vx_jit_wanted first = scale(0, VX_NUMBER_F32);
    struct vx_jit *jit = jit_rig_jit(&rig, "fake");
    (void)get(jit, &first);
    vx_jit_close(&jit);
    ck_assert_int_eq(entries(path), 1);
    ck_assert_int_eq(stat(path, &about), 0);
    struct vx_jit_options options = {.arch = "fake",
                                     .directory = rig.cache,
                                     .texts = rig.texts,
                                     .cache_bytes = about.st_size * 5 / 2};
    /* Room for two: the one that was used last stays. */
    for (i32 i = 1; i < 6; i++) {
        ck_assert_ptr_null(vx_jit_open(&options, NULL, &jit).fault);
        ck_assert(get(jit, &first).from_cache);
        (void)usleep(20 * 1000); /* sleep: at least a tick of the times of files */
        struct vx_jit_wanted wanted = scale(i, VX_NUMBER_F32);
        ck_assert(!get(jit, &wanted).from_cache);
        vx_jit_close(&jit);
        ck_assert_int_eq(entries(path), 2);
        (void)usleep(20 * 1000); /* sleep: the same */
    }
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("jit");
    TCase *tests = tcase_create("jit");
    tcase_set_timeout(tests, 30);
    tcase_add_checked_fixture(tests, setup, teardown);
    tcase_add_test(tests, kernels_wait_before_they_do_anything);
    tcase_add_test(tests, test_source_hash);
    tcase_add_test(tests, test_hash_is_of_code);
    tcase_add_test(tests, test_open_refuses);
    tcase_add_test(tests, test_archs);
    tcase_add_test(tests, test_build_once_each);
    tcase_add_loop_test(tests, test_damage, 0, (int)VX_COUNT(damages));
    tcase_add_test(tests, test_directory_of_others);
    tcase_add_test(tests, test_directory_unusable);
    tcase_add_test(tests, test_bound);
    suite_add_tcase(suite, tests);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
