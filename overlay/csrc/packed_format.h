// The two layouts of a packed file: where a row lies, what the header says, whether a page is whole.
#pragma once

#include <cstddef>
#include <cstdint>

#include "row_store.h"

namespace row_store_detail {

constexpr uint32_t kPage = ROW_STORE_PAGE;
constexpr uint32_t kPageNumber = 8;
constexpr uint32_t kChecksum = 4;

enum class Layout { dense, paged, tensors };

inline uint32_t row_bytes(const row_store_table& table) { return table.weight_bytes + table.scale_bytes; }
inline uint32_t rows_per_page(uint32_t row) { return (kPage - kPageNumber - kChecksum) / row; }

uint64_t packed_size(const row_store_table& table, Layout layout);
void write_header(const row_store_table& table, Layout layout, uint8_t* page);
// The page's number follows its last row; the checksum covers everything before itself.
void seal_page(uint32_t row, uint64_t number, uint8_t* page);

// Whether the page is the one with this number, and as it was written.
bool page_is_whole(uint32_t row, uint64_t number, const uint8_t* page);

// Which layout the first page of a file of `size` bytes has; false, and the error, unless it is exactly this table's.
bool recognise(
    const uint8_t* first, size_t length, uint64_t size, const row_store_table& wanted, Layout* layout,
    row_store_error* error);

// Fills in the error and returns false, for `return fail(...)`.
bool fail(row_store_error* error, int code, int number, int64_t row, const char* format, ...)
    __attribute__((format(printf, 5, 6)));

}  // namespace row_store_detail
