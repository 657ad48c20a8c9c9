/* access_rig - an access object for the tests of it, with a file of tokens as a text.
 *
 * Owner    the test: vx_access_close.
 * Thread   main.
 * Fails    by an assert of Check.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_ACCESS_RIG_H
#define VX_TESTS_ACCESS_RIG_H

#include "server/access/access.h"

/* Methods by their rows. */
enum {
#define VX_METHOD(path_, identifier_, kind_) M_##identifier_,
#include "proto/service.def"
#undef VX_METHOD
};

#define TOKEN_A "token-a-token-a-token-a-token-a-token-a-0"
#define TOKEN_B "token-b-token-b-token-b-token-b-token-b-0"
#define S       INT64_C(1000000000)

/* What is asked, and what the last question said. */
extern struct vx_access *rig_access;
extern struct vx_why rig_why;
extern struct vx_access_ticket rig_ticket;

/* The SHA-256 of a token; valid until the fourth call after this one. */
const char *rig_hex(const char *token);
void rig_open(const struct vx_access_options *options);
/* The text is the table from now on, at time 0. */
void rig_use(const char *text);
/* An entry a with TOKEN_A, and what follows its name and key. */
void rig_use_a(const char *rest);

/* A call of connection 7. */
vx_status rig_enter(i32 method, const char *authorization, i64 now_ns);
vx_status rig_spend(i64 requests, i64 bytes, i64 voxels, i64 now_ns);
/* Asserts that a call was refused with such a sentence, which has no token. */
void rig_refused(vx_status st, enum vx_code code, const char *sentence);
void rig_passes(vx_status st);
/* Of entry i; -1 = of nobody. */
struct vx_access_counts rig_counts(i32 i);

#endif
