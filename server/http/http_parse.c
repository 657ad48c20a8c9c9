/* SPDX-License-Identifier: Apache-2.0 */
#include "server/http/http_parse.h"

#include "engine/base/process/check.h"

#include <string.h>
#include <strings.h>

static int parse_refuse(struct vx_http_parser *parser, i32 status, const char *why)
{
    parser->status = status;
    parser->why = why;
    return -1;
}

static int parse_on_begin(llhttp_t *llhttp)
{
    struct vx_http_parser *parser = llhttp->data;
    parser->target_length = 0;
    parser->authorizes = false;
    parser->authorization_length = parser->field_length = parser->host_length = 0;
    parser->host[0] = '\0';
    return 0;
}

static int parse_on_field(llhttp_t *llhttp, const char *at, size_t length)
{
    struct vx_http_parser *parser = llhttp->data;
    if (parser->field_ends) parser->field_length = 0;
    parser->field_ends = false;
    for (size_t i = 0; i < length && parser->field_length < sizeof parser->field; i++)
        parser->field[parser->field_length++] = at[i];
    return 0;
}

static bool field_is(const struct vx_http_parser *parser, const char *name)
{
    return parser->field_length == strlen(name) &&
           !strncasecmp(parser->field, name, parser->field_length);
}

/* A part of the value; the first `begins`. */
static int parse_authorization(struct vx_http_parser *parser, bool begins, const char *at,
                               size_t length)
{
    if (begins) parser->authorization_length = 0; /* the last one counts */
    if (length > sizeof parser->authorization - parser->authorization_length)
        return parse_refuse(parser, 431, "the header Authorization is too long");
    parser->authorizes = true;
    memcpy(parser->authorization + parser->authorization_length, at, length);
    parser->authorization_length += length;
    return 0;
}

static int parse_host(struct vx_http_parser *parser, bool begins, const char *at,
                      size_t length)
{
    if (begins && parser->host_length) /* RFC 9112, 3.2 */
        return parse_refuse(parser, 400, "expected one header Host, got two");
    if (length >= sizeof parser->host - parser->host_length)
        return parse_refuse(parser, 431, "the header Host is too long");
    memcpy(parser->host + parser->host_length, at, length);
    parser->host_length += length;
    parser->host[parser->host_length] = '\0';
    return 0;
}

static int parse_on_value(llhttp_t *llhttp, const char *at, size_t length)
{
    struct vx_http_parser *parser = llhttp->data;
    bool begins = !parser->field_ends;
    parser->field_ends = true;
    if (field_is(parser, "authorization"))
        return parse_authorization(parser, begins, at, length);
    if (field_is(parser, "host")) return parse_host(parser, begins, at, length);
    return 0;
}

static int parse_on_url(llhttp_t *llhttp, const char *at, size_t length)
{
    struct vx_http_parser *parser = llhttp->data;
    if (length >= sizeof parser->path - parser->target_length)
        return parse_refuse(parser, 414, "the path and query are too long");
    memcpy(parser->path + parser->target_length, at, length);
    parser->target_length += length;
    return 0;
}

static int parse_on_headers(llhttp_t *llhttp)
{
    struct vx_http_parser *parser = llhttp->data;
    if (llhttp->method != HTTP_GET && llhttp->method != HTTP_HEAD)
        return parse_refuse(parser, 405,
                            "only GET and HEAD are supported here; send inference "
                            "requests to the gRPC port (--grpc)");
    if (llhttp->content_length > 0 || (llhttp->flags & F_TRANSFER_ENCODING))
        return parse_refuse(parser, 413, "a request with a body is not supported here");
    if (llhttp->http_major != 1)
        return parse_refuse(parser, 505, "only HTTP/1.0 and HTTP/1.1 are supported here");
    llhttp->upgrade = 0; /* ignore an offer to switch to another protocol */
    return 0;
}

/* "http://host:8002/metrics" is "/metrics" (RFC 9112, 3.2.2); whose name came does not matter. */
static char *parse_absolute(char *target)
{
    static const char scheme[] = "http://";
    if (strncasecmp(target, scheme, sizeof scheme - 1) != 0) return target;
    char *path = target + sizeof scheme - 1 + strcspn(target + sizeof scheme - 1, "/?");
    if (*path != '/') *--path = '/'; /* "http://host" is "/" */
    return path;
}

/* Pauses llhttp, so that the caller learns where the request ends. */
static int parse_on_end(llhttp_t *llhttp)
{
    struct vx_http_parser *parser = llhttp->data;
    parser->path[parser->target_length] = '\0';
    const char *path = parse_absolute(parser->path);
    memmove(parser->path, path, strlen(path) + 1);
    char *query = strchr(parser->path, '?');
    parser->query = "";
    if (query) {
        *query = '\0';
        parser->query = query + 1;
    }
    while (parser->host_length && strchr(" \t", parser->host[parser->host_length - 1]))
        parser->host[--parser->host_length] = '\0';
    parser->head_only = llhttp->method == HTTP_HEAD;
    parser->keep_alive = llhttp_should_keep_alive(llhttp);
    parser->ended = true;
    return HPE_PAUSED;
}

static const llhttp_settings_t settings = {
    .on_message_begin = parse_on_begin,
    .on_url = parse_on_url,
    .on_header_field = parse_on_field,
    .on_header_value = parse_on_value,
    .on_headers_complete = parse_on_headers,
    .on_message_complete = parse_on_end,
};

void vx_http_parser_init(struct vx_http_parser *parser)
{
    memset(parser, 0, sizeof *parser);
    parser->query = "";
    llhttp_init(&parser->llhttp, HTTP_REQUEST, &settings);
    parser->llhttp.data = parser;
}

static enum vx_http_parsed parse_fail(struct vx_http_parser *parser, llhttp_errno_t error)
{
    if (parser->status) return VX_HTTP_BAD; /* a callback has said why */
    if (error == HPE_INVALID_VERSION || error == HPE_PAUSED_H2_UPGRADE)
        parse_refuse(parser, 505, "only HTTP/1.0 and HTTP/1.1 are supported here");
    else
        parse_refuse(parser, 400, "this is not an HTTP/1.1 request");
    return VX_HTTP_BAD;
}

enum vx_http_parsed vx_http_parse(struct vx_http_parser *parser, const char *bytes,
                                  size_t length, size_t *used)
{
    VX_ASSERT(!parser->status);
    VX_ASSERT(length > 0);
    if (parser->ended) {
        llhttp_resume(&parser->llhttp);
        parser->ended = false;
        parser->head_bytes = 0;
    }
    llhttp_errno_t error = llhttp_execute(&parser->llhttp, bytes, length);
    *used = length;
    if (error == HPE_PAUSED) {
        *used = (size_t)(llhttp_get_error_pos(&parser->llhttp) - bytes);
        VX_ASSERT(*used <= length);
    } else if (error != HPE_OK) {
        return parse_fail(parser, error);
    }
    parser->head_bytes += *used;
    if (parser->head_bytes > VX_HTTP_HEAD_BYTES_MAX) {
        parse_refuse(parser, 431, "the headers are too long");
        return VX_HTTP_BAD;
    }
    return error == HPE_PAUSED ? VX_HTTP_REQUEST : VX_HTTP_MORE;
}
