/* plain - texts of a server for a terminal: control characters are escaped, and columns are
 * counted in characters.
 *
 * A name or a reason may have any character.  Written as they are, ESC and its like would
 * colour, move or clear what a person reads, and a line end would make a line of it that
 * nobody wrote.
 *
 *   char room[PLAIN_BYTES];
 *   printf("%s\n", plain_text(model->name, room));    ("a\x1b[31m", as nine characters)
 *
 * Owner    the caller's room; the result is `text` itself if nothing had to be escaped.
 * Thread   any; pure.
 * Limits   a text with control characters is cut to fit and then ends with "...".
 * Fails    never.
 *
 * SPDX-License-Identifier: Apache-2.0
 */
#ifndef VOXEL_CLIENTS_CLI_PLAIN_H
#define VOXEL_CLIENTS_CLI_PLAIN_H

#define PLAIN_BYTES 1024

const char *plain_text(const char *text, char room[PLAIN_BYTES]);
/* The characters of a text in UTF-8: code points. */
int plain_width(const char *text);
/* What `*` is in "%-*s" for a text that takes so many columns: printf counts bytes. */
int plain_pad(const char *text, int columns);
/* Prints the text as a string of JSON, with its quotes. */
void plain_print_json(const char *text);

#endif
