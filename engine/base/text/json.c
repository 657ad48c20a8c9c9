/* SPDX-License-Identifier: Apache-2.0 */
#include "engine/base/text/json.h"

#include "engine/base/utf8.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A child costs one node, one more allocation for its text or key (each with ASan's red
 * zone), and in an object a place in by_key.  The most expensive texts are "0," and
 * `"",`: 32 bytes of arena for each byte. */
#define ARENA_BYTES_PER_BYTE 32
#define ARENA_BYTES_FIXED    4096

#define SHOWN_BYTES 48 /* most bytes of a text in an error sentence */

struct parser {
    const char *text, *at, *end;
    const char *line_start;
    i32 line;
    i32 depth;
    struct vx_arena *arena;
    struct vx_why *why;
};

static vx_status parse_value(struct parser *parser, struct vx_json **value);

size_t vx_json_arena_bytes(size_t text_bytes)
{
    size_t bytes;
    if (vx_mul_overflows(text_bytes, ARENA_BYTES_PER_BYTE, &bytes)) return SIZE_MAX;
    return bytes > SIZE_MAX - ARENA_BYTES_FIXED ? SIZE_MAX : bytes + ARENA_BYTES_FIXED;
}

/* What a person may have meant, beside an error where a token is expected, or "". */
static const char *parse_hint(const struct parser *parser)
{
    const char *before = parser->at;
    if (before == parser->end) return "";
    if (*before == '/') return " (JSON has no comments)";
    if (*before == '\xef') return " (JSON has no byte order mark)";
    if (*before == '\xff' || *before == '\xfe')
        return " (a byte order mark of UTF-16? JSON is UTF-8)";
    if (*before != '}' && *before != ']') return "";
    while (before > parser->text && strchr(" \t\r\n", before[-1])) before--;
    bool comma = before > parser->text && before[-1] == ',';
    return comma ? " (JSON has no trailing comma)" : "";
}

static vx_status parse_fail_beside(const struct parser *parser, const char *expected,
                                   const char *hint)
{
    char got[32] = "the end of the text";
    if (parser->at < parser->end) {
        u8 byte = (u8)*parser->at;
        if (byte > ' ' && byte < 127)
            snprintf(got, sizeof got, "'%c'", byte);
        else
            snprintf(got, sizeof got, "byte 0x%02x", byte);
    }
    VX_FAIL_WHY(parser->why, INVALID_ARGUMENT, "not the JSON that RFC 8259 describes",
                "line %d, column %d: expected %s, got %s%s", parser->line,
                (int)(parser->at - parser->line_start) + 1, expected, got, hint);
}

static vx_status parse_fail(const struct parser *parser, const char *expected)
{
    return parse_fail_beside(parser, expected, "");
}

/* Fails where a token is expected, not a part of one. */
static vx_status parse_fail_token(const struct parser *parser, const char *expected)
{
    return parse_fail_beside(parser, expected, parse_hint(parser));
}

static vx_status parse_full(const struct parser *parser)
{
    VX_FAIL_WHY(parser->why, RESOURCE_EXHAUSTED, "the memory for a JSON text is full",
                "line %d: the memory for this text (%zu bytes) is full", parser->line,
                parser->arena->bytes);
}

static void parse_space(struct parser *parser)
{
    for (; parser->at < parser->end; parser->at++) {
        char c = *parser->at;
        if (c == '\n') {
            parser->line++;
            parser->line_start = parser->at + 1;
        } else if (c != ' ' && c != '\t' && c != '\r') {
            return;
        }
    }
}

/* Skips space; if `c` comes next, skips it, too, and returns true. */
static bool parse_eat(struct parser *parser, char c)
{
    parse_space(parser);
    if (parser->at == parser->end || *parser->at != c) return false;
    parser->at++;
    return true;
}

vx_status vx_json_parse(const char *text, size_t bytes, struct vx_arena *arena,
                        struct vx_why *why, const struct vx_json **root)
{
    *root = NULL;
    VX_ENSURE_WHY(bytes < INT32_MAX, why, INVALID_ARGUMENT, "a JSON text below 2 GiB",
                  "expected a JSON text below 2 GiB, got %zu bytes", bytes);
    struct parser parser = {
        .text = text, .at = text, .end = text + bytes, .line_start = text, .line = 1};
    parser.arena = arena;
    parser.why = why;
    struct vx_json *value;
    VX_TRY(parse_value(&parser, &value));
    parse_space(&parser);
    if (parser.at < parser.end)
        return parse_fail_token(&parser, "nothing after the value");
    *root = value;
    return VX_OK;
}

/* Four hexadecimal digits of a \u escape. */
static vx_status parse_hex(struct parser *parser, u32 *unit)
{
    *unit = 0;
    for (int i = 0; i < 4; i++, parser->at++) {
        char c = parser->at < parser->end ? *parser->at : '\0';
        u32 digit;
        if (c >= '0' && c <= '9')
            digit = (u32)(c - '0');
        else if (c >= 'a' && c <= 'f')
            digit = (u32)(c - 'a') + 10;
        else if (c >= 'A' && c <= 'F')
            digit = (u32)(c - 'A') + 10;
        else
            return parse_fail(parser, "four hexadecimal digits after \\u");
        *unit = *unit << 4 | digit;
    }
    return VX_OK;
}

static char *text_put_code(char *out, u32 code)
{
    if (code < 0x80) {
        *out++ = (char)code;
        return out;
    }
    int more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const u8 lead[] = {0, 0xc0, 0xe0, 0xf0};
    *out++ = (char)(lead[more] | code >> (6 * more));
    while (more-- > 0) *out++ = (char)(0x80 | (code >> (6 * more) & 0x3f));
    return out;
}

static vx_status parse_escape_code(struct parser *parser, char **out)
{
    u32 code, low;
    VX_TRY(parse_hex(parser, &code));
    if (code == 0) {
        parser->at--;
        return parse_fail(parser, "no NUL inside a text");
    }
    if (code >= 0xdc00 && code < 0xe000)
        return parse_fail(parser, "a high surrogate before the low one just read");
    if (code >= 0xd800 && code < 0xdc00) {
        static const char *const expected = "a low surrogate (\\udc00 to \\udfff)";
        for (const char *c = "\\u"; *c; c++, parser->at++)
            if (parser->at == parser->end || *parser->at != *c)
                return parse_fail(parser, expected);
        VX_TRY(parse_hex(parser, &low));
        if (low < 0xdc00 || low >= 0xe000) return parse_fail(parser, expected);
        code = 0x10000 + ((code - 0xd800) << 10 | (low - 0xdc00));
    }
    *out = text_put_code(*out, code);
    return VX_OK;
}

static vx_status parse_escape(struct parser *parser, char **out)
{
    static const char letters[] = "\"\\/bfnrt", meanings[] = "\"\\/\b\f\n\r\t";
    char c = parser->at < parser->end ? *parser->at : '\0';
    if (c == 'u') {
        parser->at++;
        return parse_escape_code(parser, out);
    }
    const char *letter = c ? strchr(letters, c) : NULL;
    if (!letter)
        return parse_fail(parser, "one of \" \\ / b f n r t u after a backslash");
    parser->at++;
    *(*out)++ = meanings[letter - letters];
    return VX_OK;
}

/* One character beyond ASCII. */
static vx_status parse_utf8(struct parser *parser, char **out)
{
    size_t bytes = vx_utf8_length(parser->at, (size_t)(parser->end - parser->at));
    if (!bytes) return parse_fail(parser, "valid UTF-8");
    memcpy(*out, parser->at, bytes);
    *out += bytes;
    parser->at += bytes;
    return VX_OK;
}

/* Reads the characters of a text into `out`.  There is room: no escape is shorter than
 * the bytes that it stands for. */
static vx_status parse_text_characters(struct parser *parser, char **out)
{
    for (;;) {
        if (parser->at == parser->end)
            return parse_fail(parser, "'\"' at the end of a text");
        u8 byte = (u8)*parser->at;
        if (byte == '"') {
            parser->at++;
            return VX_OK;
        }
        if (byte < 0x20)
            return parse_fail(parser,
                              "an escape in place of a control character in a text");
        if (byte == '\\') {
            parser->at++;
            VX_TRY(parse_escape(parser, out));
        } else if (byte >= 0x80) {
            VX_TRY(parse_utf8(parser, out));
        } else {
            *(*out)++ = (char)byte;
            parser->at++;
        }
    }
}

static vx_status parse_text(struct parser *parser, const char **text, i32 *count)
{
    if (parser->at == parser->end || *parser->at != '"')
        return parse_fail_token(parser, "'\"'");
    parser->at++;
    size_t room = 0; /* up to the closing quote */
    for (const char *c = parser->at; c < parser->end && *c != '"'; c++, room++)
        if (*c == '\\' && c + 1 < parser->end) c++, room++;
    char *copy = vx_arena_take(parser->arena, room + 1), *out = copy;
    if (!copy) return parse_full(parser);
    VX_TRY(parse_text_characters(parser, &out));
    *text = copy;
    *count = (i32)(out - copy);
    return VX_OK;
}

/* Skips digits; false when there is none. */
static bool parse_digits(struct parser *parser)
{
    const char *first = parser->at;
    while (parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9')
        parser->at++;
    return parser->at > first;
}

static vx_status parse_number_shape(struct parser *parser, bool *whole)
{
    *whole = true;
    if (*parser->at == '-') parser->at++;
    bool zero = parser->at < parser->end && *parser->at == '0';
    if (zero)
        parser->at++;
    else if (!parse_digits(parser))
        return parse_fail(parser, "a digit");
    if (parser->at < parser->end && *parser->at == '.') {
        *whole = false;
        parser->at++;
        if (!parse_digits(parser)) return parse_fail(parser, "a digit after '.'");
    }
    if (parser->at < parser->end && (*parser->at == 'e' || *parser->at == 'E')) {
        *whole = false;
        parser->at++;
        if (parser->at < parser->end && (*parser->at == '+' || *parser->at == '-'))
            parser->at++;
        if (!parse_digits(parser)) return parse_fail(parser, "a digit in the exponent");
    }
    return VX_OK;
}

static bool number_fits_i64(const char *digits, i64 *number)
{
    bool negative = *digits == '-';
    i64 sum = 0;
    for (const char *c = digits + negative; *c; c++) {
        i64 digit = negative ? '0' - *c : *c - '0';
        if (__builtin_mul_overflow(sum, 10, &sum)) return false;
        if (__builtin_add_overflow(sum, digit, &sum)) return false;
    }
    *number = sum;
    return true;
}

static vx_status parse_number(struct parser *parser, struct vx_json *value)
{
    const char *first = parser->at;
    bool whole;
    VX_TRY(parse_number_shape(parser, &whole));
    size_t length = (size_t)(parser->at - first);
    char digits[VX_JSON_NUMBER_BYTES_MAX + 1];
    if (length >= sizeof digits) {
        parser->at = first;
        return parse_fail(parser, "a number of at most 100 characters");
    }
    memcpy(digits, first, length);
    digits[length] = '\0';
    value->kind = VX_JSON_I64;
    if (whole && number_fits_i64(digits, &value->number)) return VX_OK;
    value->kind = VX_JSON_F64;
    char *end;
    value->real = strtod(digits, &end);
    VX_ENSURE_WHY(!*end, parser->why, INTERNAL,
                  "the decimal point of this locale is not '.'",
                  "the decimal point of this process's locale is not '.'");
    if (!isfinite(value->real)) {
        VX_FAIL_WHY(parser->why, INVALID_ARGUMENT, "a number does not fit a double",
                    "line %d, column %d: expected a number that fits a double, got %.40s",
                    parser->line, (int)(first - parser->line_start) + 1, digits);
    }
    return VX_OK;
}

static vx_status parse_word(struct parser *parser, struct vx_json *value)
{
    static const struct {
        const char *word;
        enum vx_json_kind kind;
        bool boolean;
    } words[] = {{"true", VX_JSON_BOOL, true},
                 {"false", VX_JSON_BOOL, false},
                 {"null", VX_JSON_NULL, false}};
    for (size_t i = 0; i < VX_COUNT(words); i++) {
        size_t length = strlen(words[i].word);
        if ((size_t)(parser->end - parser->at) < length) continue;
        if (memcmp(parser->at, words[i].word, length)) continue;
        value->kind = words[i].kind;
        value->boolean = words[i].boolean;
        parser->at += length;
        return VX_OK;
    }
    return parse_fail_token(parser, "a value");
}

/* Skips what follows a child; *more: another child comes. */
static vx_status parse_comma(struct parser *parser, char close, bool *more)
{
    *more = parse_eat(parser, ',');
    if (*more || parse_eat(parser, close)) return VX_OK;
    return parse_fail_token(parser, close == ']' ? "',' or ']'" : "',' or '}'");
}

static vx_status parse_list(struct parser *parser, struct vx_json *list)
{
    list->kind = VX_JSON_LIST;
    const struct vx_json **last = &list->first;
    parser->at++;
    bool more = !parse_eat(parser, ']');
    while (more) {
        struct vx_json *child;
        VX_TRY(parse_value(parser, &child));
        *last = child;
        last = &child->next;
        list->count++;
        VX_TRY(parse_comma(parser, ']', &more));
    }
    return VX_OK;
}

static int by_key_compare(const void *a, const void *b)
{
    const struct vx_json *const *left = a, *const *right = b;
    return strcmp((*left)->key, (*right)->key);
}

/* Sorts the members by key, for vx_json_find, and refuses keys that appear twice. */
static vx_status parse_object_index(struct parser *parser, struct vx_json *object)
{
    if (!object->count) return VX_OK;
    size_t count = (size_t)object->count;
    object->by_key = vx_arena_take_array(parser->arena, count, sizeof *object->by_key);
    if (!object->by_key) return parse_full(parser);
    size_t i = 0;
    VX_JSON_EACH(child, object) object->by_key[i++] = child;
    qsort(object->by_key, count, sizeof *object->by_key, by_key_compare);
    for (i = 1; i < count; i++) {
        const struct vx_json *a = object->by_key[i - 1], *b = object->by_key[i];
        if (strcmp(a->key, b->key)) continue;
        bool in_order =
            a->line < b->line || (a->line == b->line && a->column < b->column);
        const struct vx_json *one = in_order ? a : b, *two = in_order ? b : a;
        VX_FAIL_WHY(parser->why, INVALID_ARGUMENT, "a JSON object has the same key twice",
                    "line %d, column %d: expected a new key, got \"%.*s\" again, already "
                    "on line %d",
                    two->line, two->column, SHOWN_BYTES, two->key, one->line);
    }
    return VX_OK;
}

static vx_status parse_object(struct parser *parser, struct vx_json *object)
{
    object->kind = VX_JSON_OBJECT;
    const struct vx_json **last = &object->first;
    parser->at++;
    bool more = !parse_eat(parser, '}');
    while (more) {
        const char *key;
        i32 key_bytes;
        struct vx_json *child;
        parse_space(parser);
        VX_TRY(parse_text(parser, &key, &key_bytes));
        if (!parse_eat(parser, ':')) return parse_fail_token(parser, "':' after a key");
        VX_TRY(parse_value(parser, &child));
        child->key = key;
        *last = child;
        last = &child->next;
        object->count++;
        VX_TRY(parse_comma(parser, '}', &more));
    }
    return parse_object_index(parser, object);
}

static vx_status parse_value(struct parser *parser, struct vx_json **value)
{
    parse_space(parser);
    struct vx_json *made = vx_arena_take(parser->arena, sizeof *made);
    if (!made) return parse_full(parser);
    made->line = parser->line;
    made->column = (i32)(parser->at - parser->line_start) + 1;
    *value = made;
    char c = parser->at < parser->end ? *parser->at : '\0';
    if (c == '"') {
        made->kind = VX_JSON_TEXT;
        return parse_text(parser, &made->text, &made->count);
    }
    if (c == '-' || (c >= '0' && c <= '9')) return parse_number(parser, made);
    if (c != '[' && c != '{') return parse_word(parser, made);
    if (parser->depth == VX_JSON_DEPTH_MAX)
        return parse_fail(parser, "at most 32 lists and objects inside each other");
    parser->depth++;
    VX_TRY(c == '[' ? parse_list(parser, made) : parse_object(parser, made));
    parser->depth--;
    return VX_OK;
}
