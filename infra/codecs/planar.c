/* The ordinary way of one JPEG in one call, without Python: decoded to planes, each plane shrunk, summed for the
 * statistics, brought to a thumbnail, encoded.
 *
 * infra/codecs/planar.py says which pictures go this way and lays down all sizes. It compares what comes out with
 * what the Python code gives, to the bit, before this is used. Nothing here takes memory: all of it is the
 * caller's, and as much as the functions say that they need. libturbojpeg is not linked but called where Python
 * loaded it.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "area.h"
#include "sums.h"
#include "vectors.h"

enum { LUMA, CHROMA, THUMBNAIL, KINDS };
enum { SIDE = 32 };                          /* of the thumbnail (pixels) */
enum { DONE = 0, NOT_DECODED = 1, NOT_ENCODED = 2 };
enum { MARGIN = 64 };                        /* each array begins at a line of the cache */

/* -- What Python says and gets; infra/codecs/planar.py has the same structures -------------------------------- */

typedef int (*Decode)(void *handle, const uint8_t *file, unsigned long file_size, uint8_t **planes, int width,
                      int *strides, int height, int flags);
typedef int (*Encode)(void *handle, const uint8_t **planes, int width, const int *strides, int height,
                      int subsampling, uint8_t **file, unsigned long *file_size, int quality, int flags);

/* libturbojpeg as one thread has it. */
typedef struct {
    Decode decode;
    Encode encode;
    void *decompressor, *compressor;
} Codec;

typedef struct {
    int32_t height, width;
} Size;

typedef struct {
    Size decoded[2];  /* rows and columns that the decoder writes of luma and of chroma; chroma of 0 rows: grey */
    Size from[KINDS]; /* what is shrunk: of what was decoded, and of the luma halved for the thumbnail */
    Size to[KINDS];   /* chroma of 0 rows: none is stored */
    int32_t halvings; /* of the stored luma before it is averaged to the thumbnail */
    int32_t decode_flags, encode_flags, subsampling, quality;
} Sizes;

typedef struct {
    Sums luma, halved, cb, cr; /* luma halved is of the size of chroma */
    int64_t halved_cb, halved_cr, cb_cr; /* sums of products */
    uint64_t file_size; /* bytes: how many there may be, then how many there are */
    uint8_t thumbnail[SIDE * SIDE];
} Result;

/* -- Plans: what all pictures of one size have in common ------------------------------------------------------ */

typedef struct {
    Sizes sizes;
    Shares down[KINDS], across[KINDS]; /* only of what is averaged */
    size_t decoded[3], small[3], halved[2], scratch, bytes; /* where arrays lie in the memory of a call */
} Plan;

static int is_same(Size a, Size b) { return a.height == b.height && a.width == b.width; }
static int is_half(Size a, Size b) { return b.height == 2 * a.height && b.width == 2 * a.width; }
static int is_averaged(Size from, Size to) { return to.height && !is_same(from, to) && !is_half(to, from); }
static Size even(Size size) { return (Size){(size.height + 1) & ~1, (size.width + 1) & ~1}; }
static Size half(Size size) { return (Size){size.height / 2, size.width / 2}; }

static int longer(int a, int b) { return a > b ? a : b; }

/* Room for a decoded plane: chroma may be wanted a little beyond the picture. */
static Size room(const Sizes *sizes, int kind)
{
    Size decoded = sizes->decoded[kind], wanted = sizes->from[kind];
    return (Size){longer(decoded.height, wanted.height), longer(decoded.width, wanted.width)};
}

static size_t place(size_t *end, size_t bytes)
{
    size_t begin = *end;
    *end = (begin + bytes + MARGIN - 1) / MARGIN * MARGIN;
    return begin;
}

static size_t area_of(Size size) { return (size_t)size.height * size.width; }

static void lay_out(Plan *plan)
{
    const Sizes *sizes = &plan->sizes;
    size_t end = 0, scratch = 0;
    plan->decoded[0] = place(&end, area_of(room(sizes, LUMA)));
    plan->small[0] = place(&end, area_of(even(sizes->to[LUMA])));
    for (int i = 1; i < 3; i++) {
        plan->decoded[i] = place(&end, area_of(room(sizes, CHROMA)));
        plan->small[i] = place(&end, area_of(sizes->to[CHROMA]));
    }
    for (int i = 0; i < 2; i++)
        plan->halved[i] = place(&end, area_of(half(sizes->to[LUMA])));
    for (int kind = 0; kind < KINDS; kind++) {
        size_t needed = is_averaged(sizes->from[kind], sizes->to[kind]) ? area_bytes(plan->across[kind]) : 0;
        scratch = needed > scratch ? needed : scratch;
    }
    plan->scratch = place(&end, scratch);
    plan->bytes = end;
}

size_t shardmill_plan_bytes(const Sizes *sizes)
{
    size_t bytes = sizeof(Plan);
    for (int kind = 0; kind < KINDS; kind++) {
        Size from = sizes->from[kind], to = sizes->to[kind];
        if (is_averaged(from, to))
            bytes += share_bytes(from.height, to.height) + share_bytes(from.width, to.width);
    }
    return bytes;
}

/* Lay down a plan in shardmill_plan_bytes bytes. Returns how many bytes of memory a call with it needs. */
size_t shardmill_plan(const Sizes *sizes, Plan *plan)
{
    char *shares = (char *)(plan + 1);
    plan->sizes = *sizes;
    for (int kind = 0; kind < KINDS; kind++) {
        Size from = sizes->from[kind], to = sizes->to[kind];
        if (!is_averaged(from, to))
            continue;
        plan->down[kind] = share_out(from.height, to.height, shares);
        shares += share_bytes(from.height, to.height);
        plan->across[kind] = share_out(from.width, to.width, shares);
        shares += share_bytes(from.width, to.width);
    }
    lay_out(plan);
    return plan->bytes;
}

/* -- Planes --------------------------------------------------------------------------------------------------- */

/* Average over 2x2 pixels; the last row or column of an odd side is left out. */
VARIANTS static void halve(const uint8_t *from, size_t stride, Size to, uint8_t *out, size_t out_stride)
{
    const size_t width = to.width; /* an int might wrap where Python is built with -fwrapv: no vectors then */
    for (int y = 0; y < to.height; y++) {
        const uint8_t *restrict above = from + 2 * y * stride, *restrict below = above + stride;
        uint8_t *restrict row = out + y * out_stride;
        for (size_t x = 0; x < width; x++)
            row[x] = (uint8_t)((above[2 * x] + above[2 * x + 1] + below[2 * x] + below[2 * x + 1] + 2) >> 2);
    }
}

static void shrink(const Plan *plan, int kind, const uint8_t *from, size_t stride, uint8_t *to, size_t to_stride,
                   void *scratch)
{
    Size before = plan->sizes.from[kind], after = plan->sizes.to[kind];
    if (is_averaged(before, after))
        area_average(from, stride, plan->down[kind], plan->across[kind], to, to_stride, scratch);
    else if (is_half(after, before))
        halve(from, stride, after, to, to_stride);
    else
        for (int y = 0; y < after.height; y++)
            memcpy(to + y * to_stride, from + y * stride, after.width);
}

/* Repeat the last column and row of a plane up to another size, where that is larger. */
static void extend(uint8_t *plane, size_t stride, Size size, Size wanted)
{
    for (int y = 0; wanted.width > size.width && y < size.height; y++)
        memset(plane + y * stride + size.width, plane[y * stride + size.width - 1], wanted.width - size.width);
    for (int y = size.height; y < wanted.height; y++)
        memcpy(plane + y * stride, plane + (size.height - 1) * stride, wanted.width);
}

/* -- One picture ---------------------------------------------------------------------------------------------- */

static void make_thumbnail(const Plan *plan, uint8_t *memory, Result *result)
{
    Size size = plan->sizes.to[LUMA];
    const uint8_t *luma = memory + plan->small[0];
    size_t stride = even(size).width;
    for (int i = 0; i < plan->sizes.halvings; i++) {
        uint8_t *halved = memory + plan->halved[i % 2];
        size = half(size);
        if (i > 0) /* the first is there already, for the statistics */
            halve(luma, stride, size, halved, size.width);
        luma = halved;
        stride = size.width;
    }
    shrink(plan, THUMBNAIL, luma, stride, result->thumbnail, SIDE, memory + plan->scratch);
}

static int decode(const Codec *codec, const Plan *plan, const uint8_t *file, unsigned long size, uint8_t *memory)
{
    const Sizes *sizes = &plan->sizes;
    uint8_t *planes[3];
    int strides[3];
    for (int i = 0; i < 3; i++) {
        planes[i] = memory + plan->decoded[i];
        strides[i] = room(sizes, i ? CHROMA : LUMA).width;
    }
    return codec->decode(codec->decompressor, file, size, planes, 0, strides, 0, sizes->decode_flags);
}

static int encode(const Codec *codec, const Plan *plan, const uint8_t *memory, uint8_t *file, Result *result)
{
    const Sizes *sizes = &plan->sizes;
    Size size = sizes->to[LUMA];
    const uint8_t *planes[3];
    int strides[3];
    unsigned long file_size = (unsigned long)result->file_size;
    for (int i = 0; i < 3; i++) {
        planes[i] = memory + plan->small[i];
        strides[i] = i ? sizes->to[CHROMA].width : even(size).width;
    }
    int failed = codec->encode(codec->compressor, planes, size.width, strides, size.height, sizes->subsampling, &file,
                               &file_size, sizes->quality, sizes->encode_flags);
    result->file_size = file_size;
    return failed;
}

static void sum_planes(const Plan *plan, const uint8_t *memory, Result *result)
{
    Size size = plan->sizes.to[LUMA], chroma = plan->sizes.to[CHROMA];
    Plane luma = {memory + plan->small[0], even(size).width}, halved = {memory + plan->halved[0], half(size).width};
    Plane cb = {memory + plan->small[1], chroma.width}, cr = {memory + plan->small[2], chroma.width};
    result->luma = sums_of(luma, size.height, size.width);
    if (!chroma.height)
        return;
    size = half(size); /* what is left over by halving is left out of the chroma too */
    result->halved = sums_of(halved, size.height, size.width);
    result->cb = sums_of(cb, size.height, size.width);
    result->cr = sums_of(cr, size.height, size.width);
    result->halved_cb = sum_of_products(halved, cb, size.height, size.width);
    result->halved_cr = sum_of_products(halved, cr, size.height, size.width);
    result->cb_cr = sum_of_products(cb, cr, size.height, size.width);
}

static void shrink_chroma(const Plan *plan, uint8_t *memory)
{
    const Sizes *sizes = &plan->sizes;
    Size decoded = sizes->decoded[CHROMA], from = sizes->from[CHROMA], to = sizes->to[CHROMA];
    size_t stride = room(sizes, CHROMA).width;
    for (int i = 1; to.height && i < 3; i++) {
        uint8_t *plane = memory + plan->decoded[i], *small = memory + plan->small[i];
        if (decoded.height) {
            extend(plane, stride, decoded, from);
            shrink(plan, CHROMA, plane, stride, small, to.width, memory + plan->scratch);
        } else
            memset(small, 128, area_of(to)); /* what has no colour */
    }
}

/* Shrink a JPEG. ``file`` becomes the new one, of at most result->file_size bytes. */
int shardmill_shrink(const Codec *codec, const Plan *plan, const uint8_t *source, unsigned long source_size,
                     uint8_t *memory, uint8_t *file, Result *result)
{
    const Size size = plan->sizes.to[LUMA], halved = half(size);
    const size_t stride = even(size).width;
    uint8_t *small = memory + plan->small[0];
    if (decode(codec, plan, source, source_size, memory))
        return NOT_DECODED;
    shrink(plan, LUMA, memory + plan->decoded[0], room(&plan->sizes, LUMA).width, small, stride,
           memory + plan->scratch);
    shrink_chroma(plan, memory);
    extend(small, stride, size, even(size)); /* the encoder reads whole samples of chroma */
    halve(small, stride, halved, memory + plan->halved[0], halved.width);
    sum_planes(plan, memory, result);
    make_thumbnail(plan, memory, result);
    return encode(codec, plan, memory, file, result) ? NOT_ENCODED : DONE;
}
