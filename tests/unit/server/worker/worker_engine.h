/* worker_engine - an engine that ends batches, and pieces of warm-ups, when a test says so.
 *
 * It and the check of a model's files replace the real ones: same names, linked first.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_WORKER_ENGINE_H
#define VX_TESTS_WORKER_ENGINE_H

#include <stdatomic.h>

/* Batches that were submitted; that may end; times it was asked whether one has. */
extern atomic_int stub_submits, stub_may_end, stub_asked;
/* Of the warm-up of model 2, which is slow: pieces that were begun, and that may end. */
extern atomic_int stub_pieces_begun, stub_pieces_may_end;
#define STUB_FOR_EVER 1000000000
extern int stub_pieces_of_slow;
extern atomic_bool stub_is_lost;
/* What happened, to be read after join: s submit, c collect, u unload, w warm-up, p piece of the
 * slow one's (but for one that goes on for ever), x close. */
extern char stub_events[256];

#endif
