/* Area averaging of one plane of bytes, for C: the shares are counted once for many planes of the same size. */

#ifndef SHARDMILL_AREA_H
#define SHARDMILL_AREA_H

#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(hidden)

/* What is averaged along one side: new pixel i is the sum of ``most`` pixels from begins[i] on, times their
 * weights[i * most + ...]; weights that are left over are 0. */
typedef struct {
    int from, to; /* length before and after (pixels); it may not grow */
    int most;
    const int32_t *begins;
    const float *weights;
} Shares;

/* Count the shares of a side; they lie in ``memory``, of share_bytes bytes and aligned for int32_t. */
size_t share_bytes(int from, int to);
Shares share_out(int from, int to, void *memory);

/* Shrink a plane. Strides in bytes; ``memory`` is of area_bytes bytes, and no one's else meanwhile. */
size_t area_bytes(Shares across);
void area_average(const uint8_t *from, ptrdiff_t from_stride, Shares down, Shares across, uint8_t *to,
                  ptrdiff_t to_stride, void *memory);

#pragma GCC visibility pop

#endif
