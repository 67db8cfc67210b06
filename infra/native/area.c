/* Area averaging of one plane of bytes: each new pixel is the mean of the area that it covers.
 *
 * Gives the same bytes as OpenCV's INTER_AREA, and rounds where OpenCV rounds: weights in double, sums in float,
 * first along a row and then down the rows, and no multiplication fused with an addition. Unlike OpenCV it also
 * averages a window whose edges lie inside pixels. Takes eight rows at a time: transposes them, so that one vector
 * holds a column of eight pixels, shrinks across, transposes back and shrinks down.
 *
 * infra/native/area.py loads this code and compares it with OpenCV and numpy before its first use.
 */

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define INLINE static inline __attribute__((always_inline))

/* A second version with wider vectors, for processors that have them. Sanitizers cannot start before the choice. */
#if defined(__x86_64__) && defined(__GLIBC__) && (!defined(__clang__) || __clang_major__ >= 14) && \
    !defined(__SANITIZE_ADDRESS__)
#define VARIANTS __attribute__((target_clones("avx2", "default")))
#else
#define VARIANTS
#endif

#define ROWS 8 /* at a time */

#if defined(__clang__) || __GNUC__ >= 12
#define SHUFFLE(a, b, indexes, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(a, b, indexes, ...) __builtin_shuffle(a, b, (indexes){__VA_ARGS__})
#endif

typedef uint8_t bytes16 __attribute__((vector_size(16)));
typedef uint16_t words8 __attribute__((vector_size(16)));
typedef int32_t ints4 __attribute__((vector_size(16)));
typedef float floats4 __attribute__((vector_size(16)));
typedef float floats8 __attribute__((vector_size(32)));

/* The weights along one side: new pixel i is the sum of `most` old pixels, from begins[i] on, each times its
 * weight weights[i * most + ...]. Weights that are left over are 0. */
typedef struct {
    int from, to; /* length before and after (pixels) */
    int most;
    const int32_t *begins;
    const float *weights;
} Shares;

INLINE int ceiling(double value)
{
    int whole = (int)value;
    return whole + (whole < value);
}

INLINE double least(double a, double b) { return a < b ? a : b; }

/* The largest number of old pixels that a new pixel can cover, in whole or in part. */
INLINE int most_covered(double length, int to) { return length < 2.0 * to ? 3 : ceiling(length / to) + 1; }

static size_t share_bytes(double length, int to)
{
    return (sizeof(int32_t) + sizeof(float) * most_covered(length, to)) * to;
}

/* Computes the weights of one side, in `memory` of share_bytes(length, to) bytes. The new pixels cover `length` old
 * ones from `origin` on, which is below 1; what they cover beyond `from` does not count. */
static Shares share_out(int from, double origin, double length, int to, void *memory)
{
    const double nothing = 1e-3; /* smaller parts of a pixel do not count */
    double scale = 1.0 / (to / length);
    int32_t *begins = memory;
    Shares shares = {from, to, most_covered(length, to), begins, (float *)(begins + to)};
    float *weights = (float *)(begins + to);
    for (int i = 0; i < to; i++, weights += shares.most) {
        double begin = origin + i * scale, end = begin + scale, cell = least(scale, from - begin);
        int first = ceiling(begin), last = (int)end, count = 0;
        last = last > from - 1 ? from - 1 : last;
        first = first > last ? last : first;
        begins[i] = first;
        if (first - begin > nothing) {
            begins[i] = first - 1;
            weights[count++] = (float)((first - begin) / cell);
        }
        for (int pixel = first; pixel < last; pixel++)
            weights[count++] = (float)(1.0 / cell);
        if (end - last > nothing)
            weights[count++] = (float)(least(least(end - last, 1.0), cell) / cell);
        while (count < shares.most)
            weights[count++] = 0;
    }
    return shares;
}

INLINE bytes16 low(bytes16 a, bytes16 b)
{
    return SHUFFLE(a, b, bytes16, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
}

INLINE bytes16 high(bytes16 a, bytes16 b)
{
    return SHUFFLE(a, b, bytes16, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31);
}

INLINE words8 low_words(words8 a, words8 b) { return SHUFFLE(a, b, words8, 0, 8, 1, 9, 2, 10, 3, 11); }
INLINE words8 high_words(words8 a, words8 b) { return SHUFFLE(a, b, words8, 4, 12, 5, 13, 6, 14, 7, 15); }
INLINE floats4 low_floats(floats4 a, floats4 b) { return SHUFFLE(a, b, ints4, 0, 4, 1, 5); }
INLINE floats4 high_floats(floats4 a, floats4 b) { return SHUFFLE(a, b, ints4, 2, 6, 3, 7); }

/* Transposes eight rows of 16 bytes to 16 columns of eight floats. */
INLINE void transpose_bytes(const uint8_t *const rows[ROWS], int x, floats8 *columns)
{
    const bytes16 zero = {0};
    bytes16 row[8], pair[8], transposed[8];
    for (int i = 0; i < 8; i++)
        memcpy(&row[i], rows[i] + x, 16);
    for (int i = 0; i < 4; i++) {
        pair[2 * i] = low(row[i], row[i + 4]);
        pair[2 * i + 1] = high(row[i], row[i + 4]);
    }
    for (int half = 0; half < 2; half++) {
        bytes16 even_low = low(pair[half], pair[4 + half]), even_high = high(pair[half], pair[4 + half]);
        bytes16 odd_low = low(pair[2 + half], pair[6 + half]), odd_high = high(pair[2 + half], pair[6 + half]);
        transposed[4 * half] = low(even_low, odd_low);
        transposed[4 * half + 1] = high(even_low, odd_low);
        transposed[4 * half + 2] = low(even_high, odd_high);
        transposed[4 * half + 3] = high(even_high, odd_high);
    }
    for (int i = 0; i < 8; i++) { /* two columns in each; a byte with zeros above it is an integer */
        words8 one = (words8)low(transposed[i], zero), other = (words8)high(transposed[i], zero);
        floats4 values[4] = {
            __builtin_convertvector((ints4)low_words(one, (words8)zero), floats4),
            __builtin_convertvector((ints4)high_words(one, (words8)zero), floats4),
            __builtin_convertvector((ints4)low_words(other, (words8)zero), floats4),
            __builtin_convertvector((ints4)high_words(other, (words8)zero), floats4),
        };
        memcpy(&columns[x + 2 * i], values, sizeof values);
    }
}

INLINE void read_columns(const uint8_t *const rows[ROWS], int width, floats8 *columns)
{
    int x = 0;
    for (; x + 16 <= width; x += 16)
        transpose_bytes(rows, x, columns);
    for (; x < width; x++)
        for (int i = 0; i < ROWS; i++)
            columns[x][i] = rows[i][x];
}

INLINE void shrink_across(const floats8 *restrict columns, Shares shares, int most, int width, floats8 *restrict out)
{
    const float *weights = shares.weights;
    for (int x = 0; x < width; x++, weights += most) {
        const floats8 *column = columns + shares.begins[x];
        floats8 total = column[0] * weights[0];
        for (int k = 1; k < most; k++)
            total += column[k] * weights[k];
        out[x] = total;
    }
}

/* Transposes columns of eight floats to eight lines; `width` is a multiple of 4. */
INLINE void transpose_columns(const floats8 *columns, size_t width, float *lines)
{
    for (size_t x = 0; x < width; x += 4)
        for (int half = 0; half < 2; half++) {
            floats4 column[4], pair[4];
            for (int i = 0; i < 4; i++)
                memcpy(&column[i], (const float *)&columns[x + i] + 4 * half, sizeof(floats4));
            for (int i = 0; i < 2; i++) {
                pair[2 * i] = low_floats(column[i], column[i + 2]);
                pair[2 * i + 1] = high_floats(column[i], column[i + 2]);
            }
            for (int i = 0; i < 2; i++) {
                floats4 line[2] = {low_floats(pair[i], pair[i + 2]), high_floats(pair[i], pair[i + 2])};
                for (int j = 0; j < 2; j++)
                    memcpy(lines + (4 * half + 2 * i + j) * width + x, &line[j], sizeof(floats4));
            }
        }
}

INLINE void store(const float *restrict line, int width, uint8_t *restrict out)
{
    /* Adding 1.5 * 2^23 rounds a number to an integer, half to even; the lowest bits of the sum are the integer. */
    for (int x = 0; x < width; x++) {
        float shifted = line[x] + 12582912.0f;
        int32_t bits;
        memcpy(&bits, &shifted, sizeof bits);
        bits -= 0x4B400000;
        out[x] = (uint8_t)(bits > 255 ? 255 : bits);
    }
}

INLINE size_t padded_to_8(int width) { return ((size_t)width + 7) / 8 * 8; }

static size_t area_bytes(Shares across)
{
    size_t padded = padded_to_8(across.to), beyond = (size_t)across.from + across.most;
    return sizeof(floats8) * (beyond + padded + 1) + sizeof(float) * padded * ROWS;
}

/* Rows `first` to `end` of the plane, without `end`, and what is left of the rows before them: the row of the result
 * that is being summed, which of its weights is next, and the sum, of padded_to_8(width) floats. */
typedef struct {
    int first, end;
    int32_t *row_and_part;
    float *sum;
} Band;

/* `from` begins with the band; `memory` has area_bytes(across) bytes. */
VARIANTS static void area_average(const uint8_t *from, ptrdiff_t from_stride, Band band, Shares down, Shares across,
                                  uint8_t *to, ptrdiff_t to_stride, void *memory)
{
    int from_width = across.from, to_height = down.to, to_width = across.to;
    size_t padded = padded_to_8(to_width);
    floats8 *columns = (floats8 *)(((uintptr_t)memory + sizeof(floats8) - 1) & ~(uintptr_t)(sizeof(floats8) - 1));
    floats8 *shrunk = columns + from_width + across.most;
    float *lines = (float *)(shrunk + padded);
    float *restrict sum = band.sum;
    memset(columns + from_width, 0, sizeof(floats8) * (across.most + padded)); /* read with weights of 0 */

    int row = band.row_and_part[0], part = band.row_and_part[1];
    for (int top = band.first; top < band.end; top += ROWS) {
        const int bottom = top + ROWS < band.end ? top + ROWS : band.end;
        const uint8_t *rows[ROWS];
        for (int i = 0; i < ROWS; i++)
            rows[i] = from + from_stride * ((top + i < bottom ? top + i : bottom - 1) - band.first);
        read_columns(rows, from_width, columns);
        if (across.most == 3) /* the compiler unrolls these */
            shrink_across(columns, across, 3, to_width, shrunk);
        else if (across.most == 4)
            shrink_across(columns, across, 4, to_width, shrunk);
        else
            shrink_across(columns, across, across.most, to_width, shrunk);
        transpose_columns(shrunk, padded, lines);
        while (row < to_height) {
            const float weight = part < down.most ? down.weights[(size_t)row * down.most + part] : 0;
            int y = down.begins[row] + part;
            if (weight == 0) {
                store(sum, to_width, to + to_stride * row++);
                part = 0;
                continue;
            }
            if (y >= bottom)
                break;
            const float *restrict line = lines + (size_t)(y - top) * padded;
            if (part++ == 0)
                for (size_t x = 0; x < padded; x++)
                    sum[x] = weight * line[x];
            else
                for (size_t x = 0; x < padded; x++)
                    sum[x] += weight * line[x];
        }
    }
    if (row < to_height && band.end == down.from)
        store(sum, to_width, to + to_stride * row);
    band.row_and_part[0] = row;
    band.row_and_part[1] = part;
}

/* Shrinks a band of a window of a plane; neither side of the window may grow. Bands come from the top to the bottom, all
 * with the same `state`: 2 + padded_to_8(to_width) words of 4 bytes, zero at the beginning. A row of the result is
 * written with the band that completes it. Strides in bytes. Returns 0, or -1 if memory cannot be allocated. The window
 * begins in the first row and column, and each new pixel begins inside the plane. */
int shardmill_area_band(const uint8_t *from, int first, int end, int from_height, int from_width,
                        ptrdiff_t from_stride, uint8_t *to, int to_height, int to_width, ptrdiff_t to_stride,
                        void *state, double top, double left, double height, double width)
{
    size_t down_bytes = share_bytes(height, to_height), across_bytes = share_bytes(width, to_width);
    char *shares = malloc(down_bytes + across_bytes);
    if (shares == NULL)
        return -1;
    Shares down = share_out(from_height, top, height, to_height, shares);
    Shares across = share_out(from_width, left, width, to_width, shares + down_bytes);
    Band band = {first, end, state, (float *)state + 2};
    void *memory = malloc(area_bytes(across));
    if (memory != NULL)
        area_average(from, from_stride, band, down, across, to, to_stride, memory);
    free(memory);
    free(shares);
    return memory == NULL ? -1 : 0;
}

/* Shrinks a window of a plane, as a single band. */
int shardmill_area(const uint8_t *from, int from_height, int from_width, ptrdiff_t from_stride, uint8_t *to,
                   int to_height, int to_width, ptrdiff_t to_stride, double top, double left, double height,
                   double width)
{
    void *state = calloc(2 + padded_to_8(to_width), sizeof(float));
    int failed = state == NULL || shardmill_area_band(from, 0, from_height, from_height, from_width, from_stride, to,
                                                      to_height, to_width, to_stride, state, top, left, height, width);
    free(state);
    return failed ? -1 : 0;
}
