/* Exact sums over planes of bytes, for the statistics of a picture. */

#include "sums.h"

#include "vectors.h"

/* Of a row: each product is below 2^16, and a row is at most 65,500 pixels long, so the sum is below 2^32. */
INLINE uint32_t products_in_row(const uint8_t *restrict one, const uint8_t *restrict other, int width)
{
    uint32_t sum = 0;
    for (int x = 0; x < width; x++)
        sum += (uint16_t)(one[x] * other[x]);
    return sum;
}

INLINE uint32_t total_of_row(const uint8_t *row, int width)
{
    uint32_t sum = 0;
    for (int x = 0; x < width; x++)
        sum += row[x];
    return sum;
}

VARIANTS Sums sums_of(Plane plane, int height, int width)
{
    Sums sums = {0, 0};
    for (const uint8_t *row = plane.at; height--; row += plane.stride) {
        sums.total += total_of_row(row, width);
        sums.squares += products_in_row(row, row, width);
    }
    return sums;
}

VARIANTS int64_t sum_of_products(Plane one, Plane other, int height, int width)
{
    int64_t sum = 0;
    for (int y = 0; y < height; y++)
        sum += products_in_row(one.at + y * one.stride, other.at + y * other.stride, width);
    return sum;
}
