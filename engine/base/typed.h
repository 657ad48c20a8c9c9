/* typed - what a person typed, in a file or behind a command.
 *
 * A word that is not known is answered with the one that was probably meant, in every file
 * and every command alike; and every command knows --help.
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

/* The one of `known` (NULLs are skipped) that differs from `name` by a slip of the fingers;
 * NULL = none does. */
const char *vx_nearest_word(const char *name, const char *const *known,
                            size_t known_count);
/* "; the nearest is "x"" when there is such a word, else "; known: a, b, c". */
const char *vx_nearest_text(const char *name, const char *const *known,
                            size_t known_count, char out[VX_NEAREST_BYTES]);

#endif
