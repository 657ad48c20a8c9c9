/* SPDX-License-Identifier: Apache-2.0 */
#include "server/trace/trace_text.h"

#include "engine/base/process/check.h"
#include "engine/base/utf8.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT_MAX 65535
#define DIGITS   "0123456789"

/* ------- the endpoint ------- */

static bool text_is_visible(const char *text)
{
    for (; *text; text++)
        if (*text <= ' ' || *text > '~') return false;
    return true;
}

/* Takes `length` characters; false when they do not fit, or there are none. */
static bool text_take(const char *from, size_t length, char *out, size_t bytes)
{
    if (!length || length >= bytes) return false;
    memcpy(out, from, length);
    out[length] = '\0';
    return true;
}

/* HOST, HOST:PORT, [V6] or [V6]:PORT, of so many characters. */
static bool endpoint_take_authority(const char *text, size_t length,
                                    struct vx_endpoint *endpoint)
{
    if (!text_take(text, length, endpoint->authority, sizeof endpoint->authority))
        return false;
    const char *all = endpoint->authority, *end = strchr(all, ']');
    bool bracketed = all[0] == '[';
    if (bracketed != (end != NULL)) return false;
    const char *host = bracketed ? all + 1 : all;
    if (!end) end = all + strcspn(all, ":");
    if (!text_take(host, (size_t)(end - host), endpoint->host, sizeof endpoint->host))
        return false;
    const char *port = bracketed ? end + 1 : end;
    if (!*port) return text_take("80", 2, endpoint->port, sizeof endpoint->port);
    size_t digits = strspn(port + 1, DIGITS);
    if (*port != ':' || port[1 + digits]) return false;
    if (!text_take(port + 1, digits, endpoint->port, sizeof endpoint->port)) return false;
    long number = strtol(endpoint->port, NULL, 10);
    return number >= 1 && number <= PORT_MAX;
}

vx_status vx_endpoint_parse(const char *text, struct vx_why *why,
                            struct vx_endpoint *endpoint)
{
    static const char scheme[] = "http://";
    memset(endpoint, 0, sizeof *endpoint);
    VX_ENSURE_WHY(
        strncmp(text, "https://", 8) != 0, why, INVALID_ARGUMENT,
        "spans go by http alone",
        "--otlp-endpoint: expected http://HOST:PORT, got '%.60s'; for https let "
        "a collector on this host take the spans and send them on",
        text);
    bool good = !strncmp(text, scheme, sizeof scheme - 1) && text_is_visible(text) &&
                !strpbrk(text, "@#");
    const char *authority = text + sizeof scheme - 1;
    size_t length = good ? strcspn(authority, "/?") : 0;
    good = good && endpoint_take_authority(authority, length, endpoint);
    VX_ENSURE_WHY(good, why, INVALID_ARGUMENT, "the URL of the collector is not one",
                  "--otlp-endpoint: expected http://HOST:PORT or http://HOST:PORT/PATH, "
                  "without a user, got '%.100s'",
                  text);
    const char *path = authority + length;
    if (!strcmp(path, "") || !strcmp(path, "/")) path = VX_ENDPOINT_PATH;
    good = *path == '/' &&
           text_take(path, strlen(path), endpoint->path, sizeof endpoint->path);
    VX_ENSURE_WHY(
        good, why, INVALID_ARGUMENT, "the path of the collector's URL is too long",
        "--otlp-endpoint: expected a path that begins with / and has at most %d "
        "characters, got '%.100s'",
        VX_ENDPOINT_PATH_BYTES - 1, path);
    return VX_OK;
}

/* ------- the resource ------- */

void vx_resource_set(struct vx_resource *resource, const char *key, const char *value)
{
    i32 at = 0;
    while (at < resource->count && strcmp(resource->keys[at], key)) at++;
    VX_ASSERT(at < VX_RESOURCE_ATTRIBUTES_MAX);
    if (at == resource->count) resource->count++;
    resource->keys[at] = key;
    resource->values[at] = value;
}

/* Decodes %XX in place; false for a % without two digits, and for %00. */
static bool text_decode(char *text)
{
    char *out = text;
    for (; *text; text++) {
        char digits[3] = "";
        if (*text == '%') {
            if (strspn(text + 1, DIGITS "abcdefABCDEF") < 2) return false;
            memcpy(digits, text + 1, 2);
            *out = (char)strtol(digits, NULL, 16);
            if (!*out++) return false;
            text += 2;
        } else {
            *out++ = *text;
        }
    }
    *out = '\0';
    return true;
}

static bool resource_take(struct vx_resource *resource, char *pair)
{
    char *equals = strchr(pair, '=');
    if (!equals || equals == pair) return false;
    *equals = '\0';
    char *value = equals + 1;
    if (!text_is_visible(pair) || !text_decode(value)) return false;
    if (!vx_utf8_is(value, strlen(value))) return false;
    vx_resource_set(resource, pair, value);
    return true;
}

vx_status vx_resource_parse(struct vx_resource *resource, const char *text,
                            struct vx_why *why)
{
    size_t length = strlen(text);
    bool good = length < sizeof resource->text;
    if (good) memcpy(resource->text, text, length + 1);
    char *rest = resource->text;
    for (char *pair; good && length && (pair = strsep(&rest, ","));)
        good =
            resource->count < VX_RESOURCE_ATTRIBUTES_MAX && resource_take(resource, pair);
    VX_ENSURE_WHY(
        good, why, INVALID_ARGUMENT, "the resource's attributes are not a list",
        "--otlp-resource: expected key=value,key=value with at most %d attributes "
        "in all, got '%.100s'",
        VX_RESOURCE_ATTRIBUTES_MAX, text);
    return VX_OK;
}

/* ------- the ratio ------- */

vx_status vx_ratio_parse(const char *text, struct vx_why *why, f64 *ratio)
{
    char *end = NULL;
    bool plain = *text && text[strspn(text, DIGITS ".eE-+")] == '\0';
    *ratio = plain ? strtod(text, &end) : -1;
    bool good = plain && !*end && *ratio >= 0 && *ratio <= 1;
    VX_ENSURE_WHY(good, why, INVALID_ARGUMENT, "the ratio is not from 0 to 1",
                  "--otlp-ratio: expected a number from 0 to 1, got '%.60s'", text);
    return VX_OK;
}
