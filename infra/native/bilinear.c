/* Bilinear interpolation of a picture of three interleaved channels of bytes, and mirroring from left to right.
 *
 * Gives the same bytes as OpenCV's INTER_LINEAR, and rounds where OpenCV rounds: shares are whole parts of 2048, sums
 * along a row lose 4 bits, and sums down the rows 16 and then 2. Takes four pixels of a row at a time, and keeps the
 * last two rows, since rows of the result share them.
 *
 * infra/native/bilinear.py loads this code and compares it with OpenCV before its first use.
 */

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define AVX2 __attribute__((target("avx2")))
#define ONE 2048.0f
#define BESIDE 32 /* bytes that may be read or written beyond a row */

static double scale_of(int from, int to) { return 1.0 / ((double)to / from); }

/* The shares of pixel `low` and of the next one in a new pixel. */
typedef struct {
    int low;
    int16_t first, second;
} Pair;

AVX2 static inline Pair pair_at(int at, double scale)
{
    float place = (float)((at + 0.5) * scale - 0.5);
    int low = (int)floorf(place);
    float part = place - (float)low;
    return (Pair){low, (int16_t)rintf((1.0f - part) * ONE), (int16_t)rintf(part * ONE)};
}

/* For each new pixel of a row: where its pair begins (bytes), and its two shares, once for each channel. */
typedef struct {
    int32_t begin;
    int16_t shares[6];
} Column;

AVX2 static void share_out(int from, int to, int mirrored, Column *columns)
{
    double scale = scale_of(from, to);
    for (int x = 0; x < to; x++) {
        Pair pair = pair_at(mirrored ? to - 1 - x : x, scale);
        if (pair.low < 0)
            pair = (Pair){0, (int16_t)ONE, 0};
        else if (pair.low > from - 2)
            pair = (Pair){from - 2, 0, (int16_t)ONE};
        columns[x].begin = 3 * pair.low;
        for (int channel = 0; channel < 3; channel++) {
            columns[x].shares[2 * channel] = pair.first;
            columns[x].shares[2 * channel + 1] = pair.second;
        }
    }
}

/* The pairs of two columns' channels, 16 bits each, in one half of the result each. */
AVX2 static inline __m256i load_pairs(const uint8_t *row, const Column *one, const Column *other)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, -1, 3, -1, 1, -1, 4, -1, 2, -1, 5, -1, -1, -1, -1, -1));
    __m128i low = _mm_loadl_epi64((const __m128i *)(row + one->begin));
    __m128i high = _mm_loadl_epi64((const __m128i *)(row + other->begin));
    return _mm256_shuffle_epi8(_mm256_set_m128i(high, low), order);
}

AVX2 static inline __m256i sums(const uint8_t *row, const Column *one, const Column *other)
{
    __m128i low = _mm_loadu_si128((const __m128i *)one->shares), high = _mm_loadu_si128((const __m128i *)other->shares);
    __m256i shares = _mm256_set_m128i(high, low); /* behind them stand bytes that the zeros of the pairs take away */
    return _mm256_srli_epi32(_mm256_madd_epi16(load_pairs(row, one, other), shares), 4);
}

/* Interpolates a row across, to 15 bits a value; `width` is a multiple of 4. */
AVX2 static void interpolate_across(const uint8_t *row, const Column *columns, int width, int16_t *out)
{
    const __m256i order = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, -1, -1, -1, -1));
    for (int x = 0; x < width; x += 4, out += 12) {
        __m256i even = sums(row, columns + x, columns + x + 2), odd = sums(row, columns + x + 1, columns + x + 3);
        __m256i values = _mm256_shuffle_epi8(_mm256_packs_epi32(even, odd), order);
        _mm_storeu_si128((__m128i *)out, _mm256_castsi256_si128(values));
        _mm_storeu_si128((__m128i *)(out + 6), _mm256_extracti128_si256(values, 1));
    }
}

AVX2 static inline __m256i down(const int16_t *upper, const int16_t *lower, __m256i first, __m256i second)
{
    __m256i above = _mm256_mulhi_epi16(_mm256_loadu_si256((const __m256i *)upper), first);
    __m256i below = _mm256_mulhi_epi16(_mm256_loadu_si256((const __m256i *)lower), second);
    __m256i sum = _mm256_add_epi16(_mm256_add_epi16(above, below), _mm256_set1_epi16(2));
    return _mm256_srai_epi16(sum, 2);
}

AVX2 static void interpolate_down(const int16_t *upper, const int16_t *lower, Pair pair, int values, uint8_t *out)
{
    const __m256i first = _mm256_set1_epi16(pair.first), second = _mm256_set1_epi16(pair.second);
    uint8_t rest[32];
    for (int x = 0; x < values; x += 32) {
        __m256i one = down(upper + x, lower + x, first, second);
        __m256i other = down(upper + x + 16, lower + x + 16, first, second);
        __m256i bytes = _mm256_permute4x64_epi64(_mm256_packus_epi16(one, other), 0xD8);
        if (x + 32 <= values) {
            _mm256_storeu_si256((__m256i *)(out + x), bytes);
        } else {
            _mm256_storeu_si256((__m256i *)rest, bytes);
            memcpy(out + x, rest, values - x);
        }
    }
}

static int within(int row, int height) { return row < 0 ? 0 : row < height ? row : height - 1; }
#endif

/* Resizes a picture of at least two columns, with any size, and mirrors it if asked. Strides in bytes.
 * Returns 0; -1 if memory cannot be allocated; 1 if this processor lacks the instructions. */
int shardmill_bilinear(const uint8_t *from, int from_height, int from_width, ptrdiff_t from_stride, uint8_t *to,
                       int to_height, int to_width, ptrdiff_t to_stride, int mirrored)
{
#if defined(__x86_64__) && defined(__GNUC__)
    if (!__builtin_cpu_supports("avx2") || from_width < 2)
        return 1;
    size_t padded = ((size_t)to_width + 3) / 4 * 4, line = 3 * padded + BESIDE, last_bytes = 3 * (size_t)from_width;
    char *memory = calloc(1, padded * sizeof(Column) + BESIDE + 2 * line * sizeof(int16_t) + last_bytes + BESIDE);
    if (memory == NULL)
        return -1;
    int16_t *lines[2] = {(int16_t *)(memory + padded * sizeof(Column) + BESIDE), NULL};
    lines[1] = lines[0] + line;
    Column *columns = (Column *)memory;
    uint8_t *last = (uint8_t *)(lines[1] + line); /* the last row, beyond which nothing may be read */
    memcpy(last, from + from_stride * (from_height - 1), last_bytes);
    share_out(from_width, to_width, mirrored, columns);
    double scale = scale_of(from_height, to_height);
    int held[2] = {-1, -1};
    for (int y = 0; y < to_height; y++, to += to_stride) {
        Pair pair = pair_at(y, scale);
        int rows[2] = {within(pair.low, from_height), within(pair.low + 1, from_height)};
        for (int i = 0; i < 2; i++) {
            int place = rows[i] & 1; /* neighbours never share a place */
            if (held[place] != rows[i]) {
                const uint8_t *row = rows[i] == from_height - 1 ? last : from + from_stride * rows[i];
                interpolate_across(row, columns, (int)padded, lines[place]);
                held[place] = rows[i];
            }
        }
        interpolate_down(lines[rows[0] & 1], lines[rows[1] & 1], pair, 3 * to_width, to);
    }
    free(memory);
    return 0;
#else
    (void)from, (void)from_height, (void)from_width, (void)from_stride, (void)to, (void)to_height, (void)to_width;
    (void)to_stride, (void)mirrored;
    return 1;
#endif
}
