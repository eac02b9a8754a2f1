#include "packed_format.h"

#include <array>
#include <cinttypes>
#include <cstdarg>
#include <cstdio>
#include <cstring>

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)
#include <arm_acle.h>
#endif

namespace row_store_detail {
namespace {

constexpr char kDense[9] = "DSV1EN41";
constexpr char kPaged[9] = "SPKPAGE1";

void put(uint8_t* at, uint64_t value, int bytes) {
    for (int i = 0; i < bytes; i++) at[i] = static_cast<uint8_t>(value >> (8 * i));
}

uint64_t get(const uint8_t* at, int bytes) {
    uint64_t value = 0;
    for (int i = 0; i < bytes; i++) value |= static_cast<uint64_t>(at[i]) << (8 * i);
    return value;
}

#if defined(__aarch64__) && defined(__ARM_FEATURE_CRC32)

uint32_t crc32(const uint8_t* data, size_t length) {
    uint32_t crc = ~0u;
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word;
        memcpy(&word, data, 8);
        crc = __crc32d(crc, word);
    }
    for (; length; data++, length--) crc = __crc32b(crc, *data);
    return ~crc;
}

#else

using Tables = std::array<std::array<uint32_t, 256>, 16>;

constexpr Tables make_tables() {
    Tables tables{};
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++) crc = (crc >> 1) ^ ((crc & 1) ? 0xEDB88320u : 0u);
        tables[0][byte] = crc;
    }
    for (size_t step = 1; step < tables.size(); step++)
        for (size_t byte = 0; byte < 256; byte++)
            tables[step][byte] = (tables[step - 1][byte] >> 8) ^ tables[0][tables[step - 1][byte] & 0xFF];
    return tables;
}

constexpr Tables kTables = make_tables();

// Sixteen bytes a step, one table for each: the polynomial is zlib's, so that Python's zlib.crc32 writes the same.
uint32_t crc32(const uint8_t* data, size_t length) {
    uint32_t crc = ~0u;
    for (; length >= 16; data += 16, length -= 16) {
        const uint32_t first = static_cast<uint32_t>(get(data, 4)) ^ crc;
        uint32_t next = kTables[15][first & 0xFF] ^ kTables[14][(first >> 8) & 0xFF] ^
                        kTables[13][(first >> 16) & 0xFF] ^ kTables[12][first >> 24];
        for (size_t i = 4; i < 16; i++) next ^= kTables[15 - i][data[i]];
        crc = next;
    }
    for (; length; data++, length--) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xFF];
    return ~crc;
}

#endif

}  // namespace

uint64_t packed_size(const row_store_table& table, Layout layout) {
    const uint64_t rows = table.high - table.low;
    if (layout == Layout::dense) return kPage + rows * row_bytes(table);
    const uint64_t each = rows_per_page(row_bytes(table));
    return kPage + (rows + each - 1) / each * kPage;
}

void write_header(const row_store_table& table, Layout layout, uint8_t* page) {
    memset(page, 0, kPage);
    memcpy(page, layout == Layout::dense ? kDense : kPaged, 8);
    const uint64_t fields[] = {table.layer, table.low, table.high, table.total, row_bytes(table)};
    for (size_t i = 0; i < 5; i++) put(page + 8 + 8 * i, fields[i], 8);
    if (layout == Layout::paged) {
        put(page + 48, rows_per_page(row_bytes(table)), 8);
        put(page + kPage - kChecksum, crc32(page, kPage - kChecksum), kChecksum);
    }
}

void seal_page(uint32_t row, uint64_t number, uint8_t* page) {
    put(page + rows_per_page(row) * row, number, kPageNumber);
    put(page + kPage - kChecksum, crc32(page, kPage - kChecksum), kChecksum);
}

bool page_is_whole(uint32_t row, uint64_t number, const uint8_t* page) {
    return get(page + rows_per_page(row) * row, kPageNumber) == number &&
           get(page + kPage - kChecksum, kChecksum) == crc32(page, kPage - kChecksum);
}

bool recognise(
    const uint8_t* first, size_t length, uint64_t size, const row_store_table& wanted, Layout* layout,
    row_store_error* error) {
    if (length >= 8 && memcmp(first, kDense, 8) != 0 && memcmp(first, kPaged, 8) != 0)
        return fail(error, ROW_STORE_NOT_PACKED, 0, -1, "is no packed Engram file");
    if (length < kPage)
        return fail(error, ROW_STORE_TRUNCATED, 0, -1, "is cut off: %zu bytes, the header takes %u", length, kPage);
    *layout = memcmp(first, kDense, 8) == 0 ? Layout::dense : Layout::paged;
    const uint64_t row = get(first + 40, 8);
    row_store_table seen = wanted;
    seen.layer = get(first + 8, 8);
    seen.low = get(first + 16, 8);
    seen.high = get(first + 24, 8);
    seen.total = get(first + 32, 8);
    if (seen.layer != wanted.layer)
        return fail(error, ROW_STORE_WRONG_LAYER, 0, -1, "belongs to layer %" PRIu64 ", not %" PRIu64, seen.layer,
                    wanted.layer);
    if (seen.total != wanted.total || row != row_bytes(wanted))
        return fail(error, ROW_STORE_WRONG_TABLE, 0, -1,
                    "was made from another table: %" PRIu64 " rows of %" PRIu64 " bytes, not %" PRIu64 " of %u",
                    seen.total, row, wanted.total, row_bytes(wanted));
    if (seen.low != wanted.low || seen.high != wanted.high)
        return fail(error, ROW_STORE_WRONG_ROWS, 0, -1,
                    "holds rows %" PRIu64 " to %" PRIu64 " of another rank or number of ranks, not %" PRIu64
                    " to %" PRIu64,
                    seen.low, seen.high, wanted.low, wanted.high);
    uint8_t header[kPage];
    write_header(seen, *layout, header);
    if (memcmp(header, first, kPage) != 0)
        return fail(error, ROW_STORE_DAMAGED_HEADER, 0, -1, "is damaged in its header");
    const uint64_t must = packed_size(wanted, *layout);
    if (size < must)
        return fail(error, ROW_STORE_TRUNCATED, 0, -1, "is cut off: %" PRIu64 " bytes, must be %" PRIu64, size, must);
    if (size > must)
        return fail(error, ROW_STORE_TRAILING_BYTES, 0, -1, "is too long: %" PRIu64 " bytes, must be %" PRIu64, size,
                    must);
    return true;
}

bool fail(row_store_error* error, int code, int number, int64_t row, const char* format, ...) {
    if (!error) return false;
    error->code = code;
    error->error = number;
    error->row = row;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(error->text, sizeof error->text, format, arguments);
    va_end(arguments);
    return false;
}

}  // namespace row_store_detail
