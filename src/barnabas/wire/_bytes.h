/* What the native walks share: CRC32C, big-endian numbers and zigzag varints. Included by _walk.c and _compact.c. */
#ifndef BARNABAS_BYTES_H
#define BARNABAS_BYTES_H

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if defined(__x86_64__) && (defined(__GNUC__) || defined(__clang__))
#define HAVE_SSE42 1
#include <nmmintrin.h>
#endif

#define RELEASE_GIL_BYTES (256 * 1024)
#define HEADER_SIZE 61
#define LOG_OVERHEAD 12

/* ---- CRC32C: the instruction where the processor has it, else eight tables (slicing by 8) ---- */

static uint32_t crc_table[8][256];

static void make_crc_table(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
        crc_table[0][byte] = crc;
    }
    for (int row = 1; row < 8; row++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t before = crc_table[row - 1][byte];
            crc_table[row][byte] = (before >> 8) ^ crc_table[0][before & 0xFF];
        }
}

static uint32_t crc32c_by_table(const uint8_t *data, size_t size)
{
    uint32_t crc = 0xFFFFFFFFu;
    for (; size >= 8; size -= 8, data += 8) {
        uint32_t low = crc ^ ((uint32_t)data[0] | (uint32_t)data[1] << 8 | (uint32_t)data[2] << 16 |
                              (uint32_t)data[3] << 24);
        crc = crc_table[7][low & 0xFF] ^ crc_table[6][low >> 8 & 0xFF] ^ crc_table[5][low >> 16 & 0xFF] ^
              crc_table[4][low >> 24] ^ crc_table[3][data[4]] ^ crc_table[2][data[5]] ^ crc_table[1][data[6]] ^
              crc_table[0][data[7]];
    }
    for (; size > 0; size--, data++)
        crc = (crc >> 8) ^ crc_table[0][(crc ^ *data) & 0xFF];
    return ~crc;
}

#ifdef HAVE_SSE42
/* The instruction takes three cycles and can begin one each cycle, so long runs go in three lanes side by side. The
 * register of a lane is linear in its start, so the lanes are joined by moving a register over as many zero bytes as
 * the next lane is long: four lookups in a table for that length. */
#define LONG_LANE 2048
#define SHORT_LANE 256

static uint32_t over_long_lane[4][256], over_short_lane[4][256];

static inline uint32_t move_over(uint32_t table[4][256], uint32_t crc)
{
    return table[0][crc & 0xFF] ^ table[1][crc >> 8 & 0xFF] ^ table[2][crc >> 16 & 0xFF] ^ table[3][crc >> 24];
}

__attribute__((target("sse4.2"))) static void make_lane_table(uint32_t table[4][256], size_t length)
{
    for (int row = 0; row < 4; row++) {
        table[row][0] = 0;
        for (uint32_t bit = 0; bit < 8; bit++) {
            uint64_t crc = (uint64_t)1 << (8 * row + bit);
            for (size_t done = 0; done < length; done += 8)
                crc = _mm_crc32_u64(crc, 0);
            for (uint32_t low = 0; low < 1u << bit; low++)
                table[row][1u << bit | low] = (uint32_t)crc ^ table[row][low];
        }
    }
}

__attribute__((target("sse4.2"))) static inline uint64_t crc_of_lanes(uint64_t crc, const uint8_t **data, size_t *size,
                                                                      size_t lane, uint32_t table[4][256])
{
    const uint8_t *at = *data;
    while (*size >= 3 * lane) {
        uint64_t second = 0, third = 0;
        for (const uint8_t *end = at + lane; at < end; at += 8) {
            uint64_t words[3];
            memcpy(&words[0], at, 8);
            memcpy(&words[1], at + lane, 8);
            memcpy(&words[2], at + 2 * lane, 8);
            crc = _mm_crc32_u64(crc, words[0]);
            second = _mm_crc32_u64(second, words[1]);
            third = _mm_crc32_u64(third, words[2]);
        }
        crc = move_over(table, (uint32_t)crc) ^ second;
        crc = move_over(table, (uint32_t)crc) ^ third;
        at += 2 * lane;
        *size -= 3 * lane;
    }
    *data = at;
    return crc;
}

__attribute__((target("sse4.2"))) static uint32_t crc32c_by_sse42(const uint8_t *data, size_t size)
{
    uint64_t crc = 0xFFFFFFFFu;
    crc = crc_of_lanes(crc, &data, &size, LONG_LANE, over_long_lane);
    crc = crc_of_lanes(crc, &data, &size, SHORT_LANE, over_short_lane);
    for (; size >= 8; size -= 8, data += 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    uint32_t rest = (uint32_t)crc;
    for (; size > 0; size--, data++)
        rest = _mm_crc32_u8(rest, *data);
    return ~rest;
}
#endif

static uint32_t (*crc32c)(const uint8_t *, size_t) = crc32c_by_table;

static void choose_crc(void)
{
    make_crc_table();
#ifdef HAVE_SSE42
    __builtin_cpu_init();
    if (__builtin_cpu_supports("sse4.2")) {
        make_lane_table(over_long_lane, LONG_LANE);
        make_lane_table(over_short_lane, SHORT_LANE);
        crc32c = crc32c_by_sse42;
    }
#endif
}

/* ---- reading ---- */

static inline uint32_t read_u32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int32_t read_i32(const uint8_t *at)
{
    return (int32_t)read_u32(at);
}

static inline int16_t read_i16(const uint8_t *at)
{
    return (int16_t)(uint16_t)((uint32_t)at[0] << 8 | at[1]);
}

static inline int64_t read_i64(const uint8_t *at)
{
    return (int64_t)((uint64_t)read_u32(at) << 32 | read_u32(at + 4));
}

/* Zigzag varints. Null when the bytes end first, go on for too long, or hold more than the width. */
static inline const uint8_t *read_varint(const uint8_t *at, const uint8_t *end, int32_t *number)
{
    if (at < end && *at < 0x80) {
        uint32_t byte = *at;
        *number = (int32_t)(byte >> 1 ^ (0u - (byte & 1u)));
        return at + 1;
    }
    uint64_t raw = 0;
    for (int shift = 0; shift < 35; shift += 7) {
        if (at >= end)
            return NULL;
        uint8_t byte = *at++;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            if (raw > 0xFFFFFFFFu)
                return NULL;
            uint32_t value = (uint32_t)raw;
            *number = (int32_t)(value >> 1 ^ (0u - (value & 1u)));
            return at;
        }
    }
    return NULL;
}

static inline const uint8_t *read_varlong(const uint8_t *at, const uint8_t *end, int64_t *number)
{
    uint64_t raw = 0;
    for (int shift = 0; shift < 70; shift += 7) {
        if (at >= end)
            return NULL;
        uint8_t byte = *at++;
        if (shift == 63 && byte > 1)
            return NULL;
        raw |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *number = (int64_t)(raw >> 1 ^ (0u - (raw & 1u)));
            return at;
        }
    }
    return NULL;
}

#endif
