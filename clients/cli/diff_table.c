/* SPDX-License-Identifier: Apache-2.0 */
#include "clients/cli/diff_table.h"

#include "clients/cli/plain.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define PLACE_BYTES 128
#define SHAPE_BYTES 128
#define NAME_LEAST  8
#define BAR_CELLS   40

const struct diff_row *diff_table_first(const struct diff_table *table, bool worst)
{
    const struct diff_row *found = NULL;
    for (int32_t i = 0; i < table->count; i++) {
        const struct diff_row *row = &table->rows[i];
        if (!row->within) return row;
        if (worst && (!found || row->found.relative > found->found.relative)) found = row;
    }
    return found;
}

/* True if the list of names, separated by commas, has this one. */
static bool list_has(const char *names, const char *name)
{
    size_t length = strlen(name);
    for (const char *at = names; *at;) {
        size_t own = strcspn(at, ",");
        if (own == length && memcmp(at, name, length) == 0) return true;
        at += own + (at[own] == ',');
    }
    return false;
}

bool diff_table_takes(const struct diff_table *table, const struct recorded *recorded)
{
    if (!table->layers) return true;
    return recorded->kind == RECORDED_LAYER && list_has(table->layers, recorded->name);
}

/* Whether only one of the runs has it. */
static bool is_only(const struct diff_table *table, const struct recorded *one,
                    const struct recording *other)
{
    return diff_table_takes(table, one) && !recording_find(other, one->kind, one->name);
}

const struct recorded *diff_table_missing(const struct diff_table *table, bool *in_a)
{
    const struct recording *const sides[2] = {table->a, table->b};
    for (int side = 0; side < 2; side++)
        for (int32_t i = 0; i < sides[side]->count; i++) {
            const struct recorded *one = &sides[side]->list[i];
            *in_a = side == 0;
            if (one->kind == RECORDED_OUTPUT && is_only(table, one, sides[1 - side]))
                return one;
        }
    return NULL;
}

bool diff_table_within(const struct diff_table *table)
{
    bool in_a;
    return !diff_table_first(table, false) && !diff_table_missing(table, &in_a);
}

bool diff_table_is_empty(const struct diff_table *table)
{
    for (int32_t i = 0; i < table->count; i++) {
        const struct comparison *found = &table->rows[i].found;
        if (found->rows || found->only_a || found->only_b || found->shapes ||
            found->kinds)
            return false;
    }
    return true;
}

const char *diff_row_name(const struct diff_row *row, char text[DIFF_NAME_BYTES])
{
    snprintf(text, DIFF_NAME_BYTES, "%s %s",
             row->a->kind == RECORDED_OUTPUT ? "output" : "layer", row->a->name);
    return text;
}

static const char *shape_text(int32_t rank, const int64_t *shape, char text[SHAPE_BYTES])
{
    int used = 0;
    text[0] = '\0';
    for (int32_t i = 0; i < rank; i++)
        used += snprintf(text + used, SHAPE_BYTES - (size_t)used, "%s%" PRId64,
                         i ? "x" : "", shape[i]);
    return text;
}

/* "sample 0 voxel 3 4 5 channel 7", or the indices of a dense tensor. */
static const char *place_text(const struct diff_row *row, char text[PLACE_BYTES])
{
    int used = 0;
    text[0] = '\0';
    if (row->found.row < 0) return text;
    if (!row->dense) {
        snprintf(text, PLACE_BYTES,
                 "sample %" PRId64 " voxel %" PRId64 " %" PRId64 " %" PRId64
                 " channel %" PRId64,
                 row->place[0], row->place[1], row->place[2], row->place[3],
                 row->found.column);
        return text;
    }
    for (int32_t i = 0; i < row->rank; i++)
        used += snprintf(text + used, PLACE_BYTES - (size_t)used, "%s%" PRId64,
                         i ? ", " : "[", row->place[i]);
    snprintf(text + used, PLACE_BYTES - (size_t)used, "]");
    return text;
}

/* --- the table --- */

static int name_width(const struct diff_table *table)
{
    int width = NAME_LEAST;
    for (int32_t i = 0; i < table->count; i++) {
        int own = plain_width(table->rows[i].a->name);
        if (own > width) width = own;
    }
    return width + 4; /* "out." in front of an output */
}

/* Of a layer that has labels in one run alone. */
static const char *kinds_text(const struct comparison *found)
{
    return found->labels ? "A has labels, B numbers" : "A has numbers, B labels";
}

static void print_row(const struct diff_row *row, int width)
{
    const struct comparison *found = &row->found;
    char shape[SHAPE_BYTES], other[SHAPE_BYTES], place[PLACE_BYTES];
    int tag = row->a->kind == RECORDED_OUTPUT ? 4 : 0;
    printf("%c %s%-*s %14s", row->within ? ' ' : '*', tag ? "out." : "",
           plain_pad(row->a->name, width - tag), row->a->name,
           shape_text(row->rank, row->shape, shape));
    if (found->shapes || found->kinds) {
        if (found->shapes)
            printf("  B has %s", shape_text(row->other_rank, row->other_shape, other));
        if (found->kinds) printf("%s %s", found->shapes ? "," : " ", kinds_text(found));
        printf("\n");
        return;
    }
    if (found->labels)
        printf("  %" PRId64 " of %" PRId64 " labels differ", found->wrong, found->rows);
    else
        printf(" %10.4g %10.3g %10.3g %10.3g", found->largest, found->worst,
               found->relative, found->nmse);
    printf("%s%s", found->row < 0 ? "" : "  ", place_text(row, place));
    if (found->only_a || found->only_b)
        printf("  (voxels: %" PRId64 " only in A, %" PRId64 " only in B)", found->only_a,
               found->only_b);
    if (found->blank) printf("  no number is finite in both");
    printf("\n");
}

static void print_histogram(const struct diff_row *row)
{
    char name[DIFF_NAME_BYTES];
    int64_t all = 0;
    const int64_t *decades = row->found.decades;
    if (row->found.labels || row->found.shapes || row->found.kinds) return;
    for (int i = 0; i < COMPARE_DECADES; i++) all += decades[i];
    printf("\n%s: %" PRId64 " numbers by relative error\n", diff_row_name(row, name),
           all);
    for (int i = 0; i < COMPARE_DECADES; i++) {
        static const char bar[BAR_CELLS + 1] = "########################################";
        if (!decades[i]) continue;
        int cells = (int)((double)decades[i] / (double)all * BAR_CELLS);
        printf("  %-9s %12" PRId64 " %.*s\n", compare_decade_name(i), decades[i],
               cells ? cells : 1, bar);
    }
}

/* Names what only one of the recordings has; nothing if there is nothing. */
static void print_only(const struct diff_table *table, bool first)
{
    const struct recording *mine = first ? table->a : table->b;
    const struct recording *other = first ? table->b : table->a;
    const char *comma = "";
    for (int32_t i = 0; i < mine->count; i++) {
        const struct recorded *one = &mine->list[i];
        if (!is_only(table, one, other)) continue;
        if (!*comma) printf("only in %s: ", first ? "A" : "B");
        printf("%s%s%s", comma, one->kind == RECORDED_OUTPUT ? "out." : "", one->name);
        comma = ", ";
    }
    if (*comma) printf("\n");
}

static void print_end(const struct diff_table *table)
{
    const struct diff_row *first = diff_table_first(table, false);
    char name[DIFF_NAME_BYTES], place[PLACE_BYTES];
    int32_t outputs = 0;
    for (int32_t i = 0; i < table->count; i++)
        outputs += table->rows[i].a->kind == RECORDED_OUTPUT;
    bool in_a;
    const struct recorded *missing = diff_table_missing(table, &in_a);
    if (!first && missing) {
        printf("\nthe first over the bound of %g is output %s: it is only in %s\n",
               table->bound, missing->name, in_a ? "A" : "B");
        return;
    }
    if (!first) {
        const int32_t layers = table->count - outputs;
        printf("\nall %d layer%s and %d output%s are within %g\n", (int)layers,
               layers == 1 ? "" : "s", (int)outputs, outputs == 1 ? "" : "s",
               table->bound);
        return;
    }
    const struct comparison *found = &first->found;
    printf("\nthe first over the bound of %g is %s: ", table->bound,
           diff_row_name(first, name));
    if (found->kinds)
        printf("%s\n", kinds_text(found));
    else if (found->shapes)
        printf("it has another shape in B\n");
    else if (found->only_a || found->only_b)
        printf("%" PRId64 " of its voxels are only in A, %" PRId64 " only in B\n",
               found->only_a, found->only_b);
    else if (found->blank)
        printf("no number is finite in both\n");
    else if (found->labels)
        printf("%" PRId64 " labels differ, the first at %s\n", found->wrong,
               place_text(first, place));
    else
        printf("%.3g of its largest element, at %s\n", found->relative,
               place_text(first, place));
}

void diff_table_print(const struct diff_table *table)
{
    const int width = name_width(table);
    const struct diff_row *first = diff_table_first(table, false);
    printf("A: %s\nB: %s\n\n", table->a->path, table->b->path);
    printf("  %-*s %14s %10s %10s %10s %10s  where\n", width, "layer", "shape", "largest",
           "worst", "relative", "NMSE");
    for (int32_t i = 0; i < table->count; i++) print_row(&table->rows[i], width);
    print_only(table, true);
    print_only(table, false);
    for (int32_t i = 0; i < table->count; i++)
        if (&table->rows[i] == first || table->rows[i].a->kind == RECORDED_OUTPUT)
            print_histogram(&table->rows[i]);
    print_end(table);
}

/* --- JSON --- */

static void print_number(const char *name, double value)
{
    if (isfinite(value))
        printf(",\"%s\":%.9g", name, value);
    else
        printf(",\"%s\":null", name);
}

static void print_list(const char *name, const int64_t *list, int64_t count)
{
    printf(",\"%s\":[", name);
    for (int64_t i = 0; i < count; i++) printf("%s%" PRId64, i ? "," : "", list[i]);
    printf("]");
}

static void print_row_json(const struct diff_row *row)
{
    const struct comparison *found = &row->found;
    printf("{\"name\":");
    plain_print_json(row->a->name);
    printf(",\"kind\":\"%s\",\"within\":%s",
           row->a->kind == RECORDED_OUTPUT ? "output" : "layer",
           row->within ? "true" : "false");
    print_list("shape", row->shape, row->rank);
    print_list("shape_b", row->other_shape, row->other_rank);
    printf(",\"labels\":%s,\"labels_b\":%s", found->labels ? "true" : "false",
           found->labels != found->kinds ? "true" : "false");
    if (!found->labels) printf(",\"finite\":%" PRId64, found->finite);
    print_number("largest", found->largest);
    print_number("worst", found->worst);
    print_number("relative", found->relative);
    print_number("nmse", found->nmse);
    if (found->labels && !found->kinds)
        printf(",\"labels_wrong\":%" PRId64, found->wrong);
    printf(",\"only_in_a\":%" PRId64 ",\"only_in_b\":%" PRId64, found->only_a,
           found->only_b);
    if (found->row >= 0) {
        print_list(row->dense ? "index" : "voxel", row->place,
                   row->dense ? row->rank : 4);
        printf(",\"channel\":%" PRId64, found->column);
    }
    print_list("decades", found->decades, COMPARE_DECADES);
    printf("}");
}

static void print_only_json(const struct diff_table *table, bool first)
{
    const struct recording *mine = first ? table->a : table->b;
    const struct recording *other = first ? table->b : table->a;
    const char *comma = "";
    printf(",\"only_in_%s\":[", first ? "a" : "b");
    for (int32_t i = 0; i < mine->count; i++) {
        const struct recorded *one = &mine->list[i];
        if (!is_only(table, one, other)) continue;
        printf("%s", comma);
        plain_print_json(one->name);
        comma = ",";
    }
    printf("]");
}

void diff_table_print_json(const struct diff_table *table)
{
    const struct diff_row *row = diff_table_first(table, false);
    bool in_a;
    const struct recorded *first = row ? row->a : diff_table_missing(table, &in_a);
    printf("{\"a\":");
    plain_print_json(table->a->path);
    printf(",\"b\":");
    plain_print_json(table->b->path);
    printf(",\"bound\":%.9g,\"within\":%s,\"first\":", table->bound,
           first ? "false" : "true");
    if (first)
        plain_print_json(first->name);
    else
        printf("null");
    printf(",\"compared\":[");
    for (int32_t i = 0; i < table->count; i++) {
        if (i) printf(",");
        print_row_json(&table->rows[i]);
    }
    printf("]");
    print_only_json(table, true);
    print_only_json(table, false);
    printf("}\n");
}
