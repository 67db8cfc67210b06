/* Reads records of uncompressed shards and checks them, a batch at a time and without Python.
 *
 * For each record: one pread, the length and the two checksums of its frame (TFRecord), the tf.train.Example in
 * it, and whether that is the example which the index promises. What is found wrong is only counted here:
 * infra/record_batch.py has such a record read again by the Python code, which says what is wrong with it.
 */

#define _FILE_OFFSET_BITS 64
#define _POSIX_C_SOURCE 200809L

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { HEADER = 12, FOOTER = 4, ID_BYTES = 16 };

/* -- CRC-32C (Castagnoli), as TFRecord masks it -------------------------------------------------------------- */

static uint32_t tables[8][256];

__attribute__((constructor)) static void make_tables(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78u : 0);
        tables[0][byte] = crc;
    }
    for (int table = 1; table < 8; table++)
        for (int byte = 0; byte < 256; byte++)
            tables[table][byte] = tables[table - 1][byte] >> 8 ^ tables[0][tables[table - 1][byte] & 255];
}

/* Eight bytes at a time by tables (Kounavis and Berry: A systematic approach to building high performance
 * software-based CRC generators, 2005). */
static uint32_t crc_by_tables(uint32_t crc, const uint8_t *data, size_t size)
{
    for (; size >= 8; data += 8, size -= 8) {
        uint32_t low = crc ^ (data[0] | data[1] << 8 | data[2] << 16 | (uint32_t)data[3] << 24);
        crc = tables[7][low & 255] ^ tables[6][low >> 8 & 255] ^ tables[5][low >> 16 & 255] ^ tables[4][low >> 24] ^
              tables[3][data[4]] ^ tables[2][data[5]] ^ tables[1][data[6]] ^ tables[0][data[7]];
    }
    for (; size; size--)
        crc = crc >> 8 ^ tables[0][(crc ^ *data++) & 255];
    return crc;
}

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
__attribute__((target("sse4.2"))) static uint32_t crc_by_instruction(uint32_t crc, const uint8_t *data, size_t size)
{
    uint64_t wide = crc;
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        wide = __builtin_ia32_crc32di(wide, word);
    }
    crc = (uint32_t)wide;
    for (; size; size--)
        crc = __builtin_ia32_crc32qi(crc, *data++);
    return crc;
}
#define HAS_INSTRUCTION __builtin_cpu_supports("sse4.2")
#else
#define crc_by_instruction crc_by_tables
#define HAS_INSTRUCTION 0
#endif

static uint32_t masked_crc(const uint8_t *data, size_t size)
{
    uint32_t crc = ~(HAS_INSTRUCTION ? crc_by_instruction : crc_by_tables)(~0u, data, size);
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static uint64_t little_endian(const uint8_t *data, int size)
{
    uint64_t value = 0;
    for (int byte = size; byte--;)
        value = value << 8 | data[byte];
    return value;
}

/* -- Protocol buffers ---------------------------------------------------------------------------------------- */

typedef struct {
    const uint8_t *at, *end;
} Bytes;

static int read_varint(Bytes *from, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; shift < 64 && from->at < from->end; shift += 7) {
        uint8_t byte = *from->at++;
        *value |= (uint64_t)(byte & 127) << shift;
        if (byte < 128)
            return 1;
    }
    return 0;
}

/* The next field of a message, which must be of bytes (wire type 2), and its number. */
static int read_field(Bytes *from, uint64_t *number, Bytes *content)
{
    uint64_t tag, size;
    if (!read_varint(from, &tag) || (tag & 7) != 2 || !read_varint(from, &size))
        return 0;
    if (size > (uint64_t)(from->end - from->at))
        return 0;
    *number = tag >> 3;
    *content = (Bytes){from->at, from->at + size};
    from->at += size;
    return 1;
}

/* The only field of a message, which must have this number. */
static int read_only_field(Bytes message, uint64_t wanted, Bytes *content)
{
    uint64_t number;
    return read_field(&message, &number, content) && number == wanted && message.at == message.end;
}

typedef struct {
    Bytes image, id, label_name;
    int64_t label, height, width, channels;
    unsigned found; /* a bit for each of the seven */
} Example;

static int is_named(Bytes key, const char *name)
{
    size_t size = strlen(name);
    return (size_t)(key.end - key.at) == size && !memcmp(key.at, name, size);
}

enum { BYTES_LIST = 1, INT64_LIST = 3 };

static int read_feature(Bytes key, Bytes feature, Example *example)
{
    static const char *const names[] = {"image", "id", "label_name", "label", "height", "width", "channels"};
    enum { TEXTS = 3 };
    Bytes *texts[] = {&example->image, &example->id, &example->label_name};
    int64_t *numbers[] = {&example->label, &example->height, &example->width, &example->channels};
    for (unsigned which = 0; which < 7; which++) {
        Bytes list, values;
        if (!is_named(key, names[which]))
            continue;
        if (example->found & 1u << which || !read_only_field(feature, which < TEXTS ? BYTES_LIST : INT64_LIST, &list) ||
            !read_only_field(list, 1, &values))
            return 0;
        example->found |= 1u << which;
        if (which < TEXTS) {
            *texts[which] = values;
            return 1;
        }
        uint64_t value;
        if (!read_varint(&values, &value) || values.at != values.end)
            return 0;
        *numbers[which - TEXTS] = (int64_t)value;
        return 1;
    }
    return 0; /* what later versions may add is left to Python */
}

static int read_example(Bytes message, Example *example)
{
    Bytes features, entry, key, feature;
    uint64_t number;
    if (!read_only_field(message, 1, &features))
        return 0;
    while (features.at < features.end) {
        if (!read_field(&features, &number, &entry) || number != 1)
            return 0;
        if (!read_field(&entry, &number, &key) || number != 1 || !read_only_field(entry, 2, &feature))
            return 0;
        if (!read_feature(key, feature, example))
            return 0;
    }
    return example->found == 127;
}

/* -- Records ------------------------------------------------------------------------------------------------- */

/* What the index promises of n records. */
typedef struct {
    const char *id; /* ID_BYTES each */
    const int32_t *label, *height, *width;
} Promised;

static int read_record(const uint8_t *framed, int64_t size, Promised promised, int64_t row, int64_t *image)
{
    if (size < HEADER + FOOTER || little_endian(framed, 8) != (uint64_t)(size - HEADER - FOOTER))
        return 0;
    Bytes payload = {framed + HEADER, framed + size - FOOTER};
    if (masked_crc(framed, 8) != little_endian(framed + 8, 4) ||
        masked_crc(payload.at, (size_t)(payload.end - payload.at)) != little_endian(payload.end, 4))
        return 0;
    Example example = {0};
    if (!read_example(payload, &example))
        return 0;
    if (example.id.end - example.id.at != ID_BYTES || memcmp(example.id.at, promised.id + row * ID_BYTES, ID_BYTES))
        return 0;
    if (example.label != promised.label[row] || example.height != promised.height[row] ||
        example.width != promised.width[row])
        return 0;
    image[0] = example.image.at - framed;
    image[1] = example.image.end - example.image.at;
    image[2] = example.channels;
    return 1;
}

static int read_whole(int file, uint8_t *to, int64_t size, int64_t offset)
{
    while (size > 0) {
        ssize_t got = pread(file, to, (size_t)size, (off_t)offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return 0;
        to += got, size -= got, offset += got;
    }
    return 1;
}

/* images[n][3]: offset of a record's encoded image in its frame, length (bytes) and channels; offset -1 for a
 * record that is not as promised. Both functions return how many are as promised. */

/* Reads n records one after the other into `buffer`, which has room for all; image offsets count from there.
 * files, offsets, lengths: where each is. */
int64_t shardmill_read_records(int64_t n, const int32_t *files, const int64_t *offsets, const int64_t *lengths,
                               const char *id, const int32_t *label, const int32_t *height, const int32_t *width,
                               uint8_t *buffer, int64_t (*images)[3])
{
    Promised promised = {id, label, height, width};
    int64_t sound = 0, begin = 0;
    for (int64_t row = 0; row < n; begin += lengths[row], row++) {
        uint8_t *framed = buffer + begin;
        images[row][0] = -1;
        if (!read_whole(files[row], framed, lengths[row], offsets[row]) ||
            !read_record(framed, lengths[row], promised, row, images[row]))
            continue;
        images[row][0] += begin;
        sound++;
    }
    return sound;
}

/* Checks n framed records, inflated already. */
int64_t shardmill_check_records(int64_t n, const uint8_t *const *framed, const int64_t *lengths, const char *id,
                                const int32_t *label, const int32_t *height, const int32_t *width,
                                int64_t (*images)[3])
{
    Promised promised = {id, label, height, width};
    int64_t sound = 0;
    for (int64_t row = 0; row < n; row++) {
        images[row][0] = -1;
        sound += read_record(framed[row], lengths[row], promised, row, images[row]);
    }
    return sound;
}
