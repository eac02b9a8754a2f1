// Batched gather of Engram rows by id from a file far larger than memory. A C interface, no exceptions, no globals.
//
// Errors are values: a function that fails returns 0 (or NULL) and fills in `row_store_error`; no row is ever invented.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define ROW_STORE_ABI 1
#define ROW_STORE_PAGE 4096

enum row_store_code {
    ROW_STORE_OK = 0,
    ROW_STORE_ARGUMENT = 1,        // the caller's mistake
    ROW_STORE_OPEN = 2,            // the file cannot be opened or examined: see `error`
    ROW_STORE_NOT_PACKED = 3,      // the first bytes are those of no packed file
    ROW_STORE_DAMAGED_HEADER = 4,
    ROW_STORE_WRONG_LAYER = 5,
    ROW_STORE_WRONG_TABLE = 6,     // made from a table of another size
    ROW_STORE_WRONG_ROWS = 7,      // another rank's, or for another number of ranks
    ROW_STORE_TRUNCATED = 8,
    ROW_STORE_TRAILING_BYTES = 9,
    ROW_STORE_OUT_OF_TABLE = 10,   // an id that no row has
    ROW_STORE_READ = 11,           // the system refused a read: see `error`
    ROW_STORE_SHORT_READ = 12,     // the file ended inside a row
    ROW_STORE_BAD_PAGE = 13,       // the checksum or the number of a page is wrong
    ROW_STORE_ENGINE = 14,         // reads can no longer be submitted: see `error`
    ROW_STORE_MEMORY = 15
};

enum row_store_engine {
    ROW_STORE_PROBE = 0,           // the first of the others that works here
    ROW_STORE_IO_URING = 1,
    ROW_STORE_LIBAIO = 2,
    ROW_STORE_THREADS = 3
};

typedef struct row_store row_store;

typedef struct {
    int32_t code;                  // row_store_code
    int32_t error;                 // errno, or 0
    int64_t row;                   // the row it happened at, or -1
    char text[240];                // one sentence
} row_store_error;

// The rows [low, high) of a table of `total` rows; the others are another rank's.
typedef struct {
    uint64_t layer;
    uint64_t low;
    uint64_t high;
    uint64_t total;
    uint32_t weight_bytes;         // of one row
    uint32_t scale_bytes;
} row_store_table;

typedef struct {
    uint32_t engine;               // row_store_engine
    uint32_t depth;                // reads in flight, or threads; 0 for the default
    uint32_t alignment;            // of direct reads; 0 for what the file system asks for
    uint32_t buffered;             // 1: through the page cache
    uint32_t unchecked;            // 1: do not compare the checksums of a paged file
    uint32_t resident_scales;      // 1: hold all scales of a safetensors table in memory
    uint64_t cache_bytes;          // 0: no cache
} row_store_options;

typedef struct {
    uint64_t batches;
    uint64_t ids;
    uint64_t zero_rows;            // dead ids and other ranks' rows
    uint64_t duplicates;           // asked for again within a batch
    uint64_t cache_hits;
    uint64_t reads;
    uint64_t straddling;           // reads that need more than one aligned block
    uint64_t bytes;                // asked of the device
    uint64_t retries;
    uint64_t nanoseconds;          // spent in all batches
    uint64_t slowest;              // nanoseconds of the slowest batch
    uint64_t resident_bytes;       // memory the store holds
} row_store_statistics;

int row_store_abi(void);

// `path` must be a packed file of exactly this table, dense or paged.
row_store* row_store_open_packed(
    const char* path, const row_store_table* table, const row_store_options* options, row_store_error* error);

// Straight from a checkpoint: `weight_at` and `scale_at` are the offsets of the tensors in the file.
row_store* row_store_open_tensors(
    const char* path, const row_store_table* table, uint64_t weight_at, uint64_t scale_at,
    const row_store_options* options, row_store_error* error);

// Row ids[i] goes to weights + i * weight_bytes and scales + i * scale_bytes. Negative ids and other ranks' rows give
// zeros. Callers in several threads take turns. After a failure the contents of the two buffers are undefined.
int row_store_gather32(
    row_store* store, const int32_t* ids, size_t count, uint8_t* weights, uint8_t* scales, row_store_error* error);
int row_store_gather64(
    row_store* store, const int64_t* ids, size_t count, uint8_t* weights, uint8_t* scales, row_store_error* error);

// A gather as one pointer, for cudaLaunchHostFunc and its like, which cannot be told of a failure: the rows then become
// NaN, so that nothing can take them for values, a line goes to standard error, and `error` keeps the first failure.
typedef struct {
    row_store* store;
    const int32_t* ids;
    uint64_t count;
    uint8_t* weights;
    uint8_t* scales;
    row_store_error error;
} row_store_work;

void row_store_run(void* work);

void row_store_read_statistics(row_store* store, row_store_statistics* statistics);

// One line: the engine, its depth, how the file is read, and why nothing better was taken. Lives as long as the store.
const char* row_store_description(const row_store* store);

void row_store_close(row_store* store);

// The format, for writers: `page` has ROW_STORE_PAGE bytes.
void row_store_write_header(const row_store_table* table, int paged, uint8_t* page);
void row_store_seal_page(uint32_t row_bytes, uint64_t number, uint8_t* page);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif
