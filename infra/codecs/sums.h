/* Exact sums over planes of bytes (sums.c). */

#ifndef SHARDMILL_SUMS_H
#define SHARDMILL_SUMS_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

typedef struct {
    const uint8_t *at;
    size_t stride; /* bytes */
} Plane;

typedef struct {
    int64_t total, squares;
} Sums;

/* ``width`` is at most 65,500 pixels, the longest side of a JPEG. */
Sums sums_of(Plane plane, int height, int width);
int64_t sum_of_products(Plane one, Plane other, int height, int width);

#pragma GCC visibility pop

#endif
