/* typed - finds the word that a person probably meant, and the request for --help.
 *
 * An error about an unknown word, in any file or command, names the nearest known word.
 * Every command understands --help.
 *
 *   vx_nearest_text("chanels", known, count, out)      ("; the nearest is \"channels\"")
 *   if (vx_help_asked(count, arguments)) ...print the help, exit with 0...
 *
 * Owner    the caller's buffers.
 * Thread   any; pure.
 * Limits   texts are cut to fit.
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_BASE_TYPED_H
#define VX_ENGINE_BASE_TYPED_H

#include "engine/base/types.h"

/* Characters of a name shown in a sentence; longer ones are cut. */
#define VX_NAME_SHOWN 64
/* Longest text of vx_nearest_text, with its NUL. */
#define VX_NEAREST_BYTES 160

/* Whether --help or -h is among the arguments. */
bool vx_help_asked(int count, char **arguments);

/* How many letters to insert, delete, replace or swap with the next one turn `a` into `b`;
 * of each at most VX_NAME_BYTES - 1 are compared. */
size_t vx_word_distance(const char *a, const char *b);
/* The word of `known` (NULLs are skipped) that differs from `name` only by a typing mistake or by a
 * prefix that ends in a point, or that alone begins with it; NULL = none. */
const char *vx_nearest_word(const char *name, const char *const *known,
                            size_t known_count);
/* Writes "; the nearest is "x"" when there is such a word, else "; known: a, b, c", and behind
 * the words that have room ", and 7 more".  Returns `out`. */
const char *vx_nearest_text(const char *name, const char *const *known,
                            size_t known_count, char out[VX_NEAREST_BYTES]);

#endif
