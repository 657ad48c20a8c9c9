/* Models through their states, with workers that only remember what they were told.
 *
 * The test defines vx_workers_* itself, so the real ones, which start processes, stay in the library.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#include "server/models.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WORKERS 2

static struct vx_worker_info infos[WORKERS];
static struct vx_message_head told[64]; /* what was sent, in order */
static i32 told_to[64], told_count;

i32 vx_workers_count(const struct vx_workers *workers)
{
    (void)workers;
    return WORKERS;
}

const struct vx_worker_info *vx_workers_info(const struct vx_workers *workers, i32 worker)
{
    (void)workers;
    return &infos[worker];
}

bool vx_workers_send(struct vx_workers *workers, i32 worker,
                     const struct vx_message_head *message, size_t bytes)
{
    (void)workers;
    ck_assert_uint_ge(bytes, sizeof *message);
    ck_assert_int_eq(infos[worker].state, VX_WORKER_UP);
    ck_assert_int_lt(told_count, 64);
    told_to[told_count] = worker;
    told[told_count++] = *message;
    return true;
}

static struct vx_registry *registry;
static struct vx_sched *sched;
static struct vx_models *models;
static struct vx_workers *workers;
static int lost;
static i32 channels; /* of the files on disk, as a worker reads them */

static void on_lost(void *context, struct vx_job *job)
{
    (void)context;
    (void)job;
    lost++;
}

static void set_up(void)
{
    memset(infos, 0, sizeof infos);
    told_count = lost = 0;
    channels = 4;
    ck_assert(!vx_registry_open(&registry).fault && !vx_sched_open(8, &sched).fault);
    ck_assert(!vx_models_open(&(struct vx_models_options){.repository = "/models",
                                                          .registry = registry,
                                                          .sched = sched,
                                                          .workers = &workers,
                                                          .on_lost = on_lost},
                              &models)
                   .fault);
}

static void tear_down(void)
{
    vx_models_close(&models);
    vx_sched_close(&sched);
    vx_registry_close(&registry);
}

static void worker_up(i32 worker)
{
    infos[worker].state = VX_WORKER_UP;
    vx_sched_worker_up(sched, worker);
    vx_models_on_worker_up(models, worker);
}

static void worker_down(i32 worker)
{
    infos[worker].state = VX_WORKER_DOWN;
    vx_models_on_worker_down(models, worker);
    vx_sched_worker_down(sched, worker, on_lost, NULL);
}

static void list(i64 version, u64 fingerprint)
{
    static struct vx_repository_listing listing;
    listing = (struct vx_repository_listing){
        .readable = true, .complete = true, .count = version ? 1 : 0};
    listing.entries[0] = (struct vx_repository_entry){
        .name = "m", .version = version, .fingerprint = fingerprint};
    vx_models_on_listing(models, &listing);
}

/* What fits on each worker's device. */
static i64 worker_voxels[8];

/* The last LOAD a worker was told, answered. */
static i32 answer(i32 worker, enum vx_code code)
{
    i32 at = told_count - 1;
    while (told_to[at] != worker || told[at].kind != VX_MESSAGE_LOAD) at--;
    static union vx_message message;
    message.loaded = (struct vx_message_loaded){.head = told[at], .code = (i32)code};
    message.head.kind = VX_MESSAGE_LOADED;
    message.loaded.signature = (struct vx_signature){
        .feats_channels = channels, .outputs_count = 1, .batch_voxels_max = 1000};
    message.loaded.signature.voxels_max = worker_voxels[worker];
    snprintf(message.loaded.why.text, sizeof message.loaded.why.text, "the reason");
    vx_models_on_message(models, worker, &message);
    vx_models_step(models);
    return told[at].instance;
}

static enum vx_instance_state state_of(i32 instance)
{
    return vx_registry_row(registry, instance)->state;
}

static i32 picked(i64 version)
{
    i32 instance = -1;
    return vx_registry_pick(registry, "m", version, NULL, &instance).fault ? -1
                                                                           : instance;
}

START_TEST(ready_when_every_worker_that_is_up_has_it)
{
    list(1, 10);
    ck_assert_int_eq(told_count, 0); /* nobody is up */
    worker_up(0);
    worker_up(1);
    i32 instance = answer(0, VX_CODE_OK);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_LOADING);
    answer(1, VX_CODE_OK);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(picked(0), instance);
}
END_TEST

START_TEST(a_worker_that_dies_before_answering_does_not_hold_readiness_back)
{
    worker_up(0);
    worker_up(1);
    list(1, 10);
    i32 instance = answer(0, VX_CODE_OK);
    worker_down(1);
    vx_models_step(models);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_READY);
}
END_TEST

START_TEST(a_changed_version_takes_over_in_one_step)
{
    worker_up(0);
    list(1, 10);
    i32 old = answer(0, VX_CODE_OK);
    list(1, 11);
    ck_assert_int_eq(picked(0), old);
    i32 new = answer(0, VX_CODE_OK);
    ck_assert_int_ne(new, old);
    ck_assert_int_eq(picked(0), new);
    vx_models_step(models);
    ck_assert_int_eq(state_of(old), VX_INSTANCE_FREE);
    ck_assert_int_eq(told[told_count - 1].kind, VX_MESSAGE_UNLOAD);
    ck_assert_int_eq(told[told_count - 1].instance, old);
}
END_TEST

START_TEST(a_failed_change_leaves_the_old_one_and_mending_it_is_seen)
{
    worker_up(0);
    list(1, 10);
    i32 old = answer(0, VX_CODE_OK);
    list(1, 11);
    i32 bad = answer(0, VX_CODE_DATA_LOSS);
    ck_assert_int_eq(state_of(bad), VX_INSTANCE_UNAVAILABLE);
    ck_assert_str_eq(vx_registry_row(registry, bad)->reason, "the reason");
    ck_assert_int_eq(picked(0), old);
    list(1, 11); /* nothing new on disk, but the reason may be gone: tried again */
    bad = answer(0, VX_CODE_DATA_LOSS);
    ck_assert_int_eq(picked(0), old);
    list(1, 12);
    i32 mended = answer(0, VX_CODE_OK);
    vx_models_step(models);
    ck_assert_int_eq(picked(0), mended);
    ck_assert_int_eq(state_of(old), VX_INSTANCE_FREE);
    ck_assert_int_eq(state_of(bad), VX_INSTANCE_FREE);
}
END_TEST

START_TEST(a_version_that_is_gone_is_unloaded_after_its_last_job)
{
    worker_up(0);
    list(1, 10);
    i32 instance = answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = instance, .deadline_ns = INT64_MAX};
    ck_assert(!vx_sched_submit(sched, &job, 0, NULL).fault);
    list(0, 0);
    vx_models_step(models);
    ck_assert_int_eq(picked(0), -1);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_UNLOADING);
    struct vx_batch_plan plan;
    ck_assert(vx_sched_pick(sched, 0, &plan)); /* what was admitted still runs */
    ck_assert(vx_sched_finish(sched, 0, plan.batch, &plan));
    vx_models_step(models);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_FREE);
}
END_TEST

START_TEST(a_model_that_kills_its_loader_is_given_up_and_its_jobs_are_lost)
{
    list(1, 10);
    i32 instance = 0;
    for (int death = 0; death < 3; death++) {
        ck_assert_int_eq(state_of(instance), VX_INSTANCE_LOADING);
        worker_up(0);
        worker_down(0);
        vx_models_step(models);
    }
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_UNAVAILABLE);
    ck_assert_ptr_nonnull(
        strstr(vx_registry_row(registry, instance)->reason, "died each time"));
    i32 said = told_count;
    worker_up(0);
    ck_assert_int_eq(told_count, said); /* the next worker is spared */
}
END_TEST

START_TEST(a_death_without_a_load_under_way_counts_against_nobody)
{
    worker_up(0);
    list(1, 10);
    i32 instance = answer(0, VX_CODE_OK);
    for (int death = 0; death < 10; death++) {
        worker_down(0);
        worker_up(0);
        answer(0, VX_CODE_OK);
    }
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(lost, 0);
}
END_TEST

START_TEST(a_model_that_another_worker_serves_is_not_given_up)
{
    worker_up(0);
    list(1, 10);
    i32 instance = answer(0, VX_CODE_OK);
    for (int death = 0; death < 5; death++) {
        worker_up(1);
        worker_down(1);
        vx_models_step(models);
    }
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(picked(0), instance);
}
END_TEST

START_TEST(an_incomplete_listing_takes_nothing_away)
{
    worker_up(0);
    list(1, 10);
    i32 instance = answer(0, VX_CODE_OK);
    static const struct vx_repository_listing partial = {.readable = true};
    vx_models_on_listing(models, &partial);
    vx_models_step(models);
    ck_assert_int_eq(picked(0), instance);
}
END_TEST

START_TEST(a_row_on_its_way_out_does_not_come_back_as_unavailable)
{
    worker_up(0);
    list(1, 10);
    list(0, 0); /* gone before it was loaded */
    i32 instance = answer(0, VX_CODE_DATA_LOSS);
    vx_models_step(models);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_FREE);
}
END_TEST

START_TEST(a_job_of_a_row_on_its_way_out_is_answered_when_it_cannot_be_loaded_again)
{
    worker_up(0);
    list(1, 10);
    i32 instance = answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = instance, .deadline_ns = INT64_MAX};
    ck_assert(!vx_sched_submit(sched, &job, 0, NULL).fault);
    list(0, 0);
    worker_down(0);
    vx_models_step(models);
    ck_assert_int_eq(lost, 0); /* the restarted worker may still run it */
    worker_up(0);
    answer(0, VX_CODE_NOT_FOUND);
    ck_assert_int_eq(lost, 1);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_FREE);
}
END_TEST

START_TEST(files_that_changed_under_a_restart_do_not_take_the_old_models_requests)
{
    worker_up(0);
    list(1, 10);
    i32 instance = answer(0, VX_CODE_OK);
    struct vx_job job = {.instance = instance, .deadline_ns = INT64_MAX};
    worker_down(0);
    ck_assert(!vx_sched_submit(sched, &job, 0, NULL).fault);
    channels = 5; /* somebody wrote the new model, and sent no SIGHUP */
    worker_up(0);
    answer(0, VX_CODE_OK);
    ck_assert_int_eq(lost, 1);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_UNAVAILABLE);
    ck_assert_int_eq(told[told_count - 1].kind, VX_MESSAGE_UNLOAD);
    list(1, 11);
    ck_assert_int_eq(state_of(answer(0, VX_CODE_OK)), VX_INSTANCE_READY);
}
END_TEST

/* A CPU beside a GPU, or a GPU whose tuning table changed: other limits are no other model. */
START_TEST(workers_on_which_less_fits_serve_too)
{
    worker_voxels[0] = 5000;
    worker_voxels[1] = 3000;
    worker_up(0);
    worker_up(1);
    list(1, 10);
    i32 instance = answer(0, VX_CODE_OK);
    ck_assert_int_eq(vx_registry_row(registry, instance)->signature.voxels_max, 5000);
    answer(1, VX_CODE_OK);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(vx_registry_row(registry, instance)->workers_loaded, 3);
    ck_assert_int_eq(vx_registry_row(registry, instance)->signature.voxels_max, 3000);
    /* Both die; the one that comes back alone says anew what fits. */
    worker_down(0);
    worker_down(1);
    worker_voxels[0] = 4000;
    worker_up(0);
    answer(0, VX_CODE_OK);
    ck_assert_int_eq(state_of(instance), VX_INSTANCE_READY);
    ck_assert_int_eq(vx_registry_row(registry, instance)->signature.voxels_max, 4000);
    memset(worker_voxels, 0, sizeof worker_voxels);
}
END_TEST

START_TEST(words_about_a_row_since_freed_are_ignored)
{
    worker_up(0);
    list(1, 10);
    static union vx_message late;
    late.loaded = (struct vx_message_loaded){.head = told[0]};
    late.head.kind = VX_MESSAGE_LOADED;
    worker_down(0);
    list(0, 0);
    vx_models_step(models);
    worker_up(0);
    vx_models_on_message(models, 0, &late);
    vx_models_step(models);
    ck_assert_int_eq(picked(0), -1);
    ck_assert_int_eq(state_of(late.head.instance), VX_INSTANCE_FREE);
}
END_TEST

int main(void)
{
    Suite *suite = suite_create("models");
    TCase *tcase = tcase_create("states");
    tcase_add_checked_fixture(tcase, set_up, tear_down);
    tcase_add_test(tcase, ready_when_every_worker_that_is_up_has_it);
    tcase_add_test(tcase,
                   a_worker_that_dies_before_answering_does_not_hold_readiness_back);
    tcase_add_test(tcase, a_changed_version_takes_over_in_one_step);
    tcase_add_test(tcase, a_failed_change_leaves_the_old_one_and_mending_it_is_seen);
    tcase_add_test(tcase, a_version_that_is_gone_is_unloaded_after_its_last_job);
    tcase_add_test(tcase,
                   a_model_that_kills_its_loader_is_given_up_and_its_jobs_are_lost);
    tcase_add_test(tcase, a_death_without_a_load_under_way_counts_against_nobody);
    tcase_add_test(
        tcase, files_that_changed_under_a_restart_do_not_take_the_old_models_requests);
    tcase_add_test(tcase, a_model_that_another_worker_serves_is_not_given_up);
    tcase_add_test(tcase, an_incomplete_listing_takes_nothing_away);
    tcase_add_test(tcase, a_row_on_its_way_out_does_not_come_back_as_unavailable);
    tcase_add_test(
        tcase, a_job_of_a_row_on_its_way_out_is_answered_when_it_cannot_be_loaded_again);
    tcase_add_test(tcase, workers_on_which_less_fits_serve_too);
    tcase_add_test(tcase, words_about_a_row_since_freed_are_ignored);
    suite_add_tcase(suite, tcase);
    SRunner *runner = srunner_create(suite);
    srunner_run_all(runner, CK_NORMAL);
    int failed = srunner_ntests_failed(runner);
    srunner_free(runner);
    return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
