/* typed_writer - writes requests with typed contents in every way that protobuf allows, and with mistakes.
 *
 * Lists are packed, value by value, or both by turns; `contents` comes several times; tags, lengths and
 * values have more bytes than they need; unknown fields stand between them.
 *
 *   typed_write(&wire, &dice, 3);     about a third of the requests has a mistake
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_TESTS_UNIT_TYPED_WRITER_H
#define VX_TESTS_UNIT_TYPED_WRITER_H

#include "tests/unit/proto/codec_harness.h"

/* mistakes: one of so many requests has one or more; 0 = none has. */
void typed_write(struct wire *wire, struct dice *dice, u64 mistakes);

#endif
