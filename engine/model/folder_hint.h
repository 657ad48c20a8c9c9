/* folder_hint - which folder somebody meant who named one that is no model's.
 *
 * The commonest slips are the repository itself, one of a model's files, and the folder of a
 * version.
 *
 *   vx_folder_hint("repository", out)   ("; it is a repository of models (a, b): name one of
 *                                         them, such as repository/a")
 *
 * Owner    the caller's buffer.
 * Thread   any; it reads directories, so it may block.
 * Limits   VX_FOLDER_HINT_BYTES; texts are cut to fit.
 * Fails    never: "" when nothing is known.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VX_ENGINE_MODEL_FOLDER_HINT_H
#define VX_ENGINE_MODEL_FOLDER_HINT_H

#define VX_FOLDER_HINT_BYTES 192

/* `directory` has no network.json that can be opened. */
const char *vx_folder_hint(const char *directory, char out[VX_FOLDER_HINT_BYTES]);
/* A model's directory has no weights of that version: what there is instead. */
const char *vx_version_hint(const char *directory, int version,
                            char out[VX_FOLDER_HINT_BYTES]);

#endif
