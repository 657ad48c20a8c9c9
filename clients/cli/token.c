/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/token.h"

#include "clients/c/client.h"
#include "clients/cli/options.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BLANKS " \t\r\n"

/* A token and blanks around it, such as the newline that an editor adds. */
static char text[VOXEL_TOKEN_BYTES_MAX + 16];

static int say(const char *command, const char *file, const char *why)
{
    fprintf(stderr,
            "voxel %s: --token-file: expected a file with a token, got '%s': %s\n",
            command, file, why);
    return CLI_USAGE;
}

static int file_read(const char *command, const char *file, const char **token)
{
    int fd = open(file, O_RDONLY | O_CLOEXEC);
    if (fd < 0) return say(command, file, strerror(errno));
    ssize_t got = read(fd, text, sizeof text - 1);
    int error = errno;
    close(fd);
    if (got < 0) return say(command, file, strerror(error));
    text[got] = '\0';
    char *begin = text + strspn(text, BLANKS);
    size_t length = strcspn(begin, BLANKS);
    if (!length) return say(command, file, "it is empty");
    if (begin[length + strspn(begin + length, BLANKS)] || (size_t)got == sizeof text - 1)
        return say(command, file, "it has more than one word");
    begin[length] = '\0';
    *token = begin;
    return CLI_DONE;
}

int cli_token_get(const char *command, const char *file, const char *server,
                  struct voxel_options *options)
{
    options->token = NULL;
    if (file) {
        int code = file_read(command, file, &options->token);
        if (code) return code;
    } else {
        const char *said = getenv("VOXEL_TOKEN");
        if (said && *said) options->token = said;
    }
    if (options->token && !options->tls && !voxel_address_is_local(server))
        fprintf(stderr,
                "voxel %s: the token goes to %s in plain text; anyone who sees it on the "
                "way can use it\n",
                command, server);
    return CLI_DONE;
}
