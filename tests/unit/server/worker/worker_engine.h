/* worker_engine - an engine that ends batches, and steps of warm-ups, when a test says
 * so.
 *
 * The engine and the check of a model's files replace the real ones: same names, linked
 * first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_WORKER_ENGINE_H
#define VX_TESTS_WORKER_ENGINE_H

#include <stdatomic.h>

/* Batches that were submitted; batches that may end; how often the engine was polled, and
 * how often of these by one that would wait. */
extern atomic_int stub_submits, stub_may_end, stub_asked, stub_asked_waiting;
/* Of the warm-up of model 2, which is slow: steps that have begun, and steps that may
 * end. */
extern atomic_int stub_pieces_begun, stub_pieces_may_end;
#define STUB_FOR_EVER 1000000000
extern int stub_pieces_of_slow;
extern atomic_bool stub_is_lost;
/* The events, to be read after join: s submit, c collect, u unload, w warm-up, p step
 * of the slow warm-up (except one that goes on for ever), a items ask, l places, r a
 * refusal, x close. */
extern char stub_events[256];

#endif
