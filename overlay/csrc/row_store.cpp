// The C interface: checks what it is given and lets no exception out.
#include "row_store.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>

#include "store.h"

namespace row_store_detail {
namespace {

bool is_possible(const row_store_table* table, row_store_error* error) {
    if (!table || table->low >= table->high || table->high > table->total || !table->weight_bytes ||
        !table->scale_bytes ||
        table->total > (uint64_t{1} << 40) || uint64_t{table->weight_bytes} + table->scale_bytes > 2048)
        return fail(error, ROW_STORE_ARGUMENT, 0, -1, "no table has these rows");
    return true;
}

template <class Open>
row_store* open_store(
    const char* path, const row_store_table* table, const row_store_options* options, row_store_error* error,
    Open open) {
    if (error) memset(error, 0, sizeof *error);
    try {
        if (!path || !options || !is_possible(table, error)) return nullptr;
        auto store = std::make_unique<Store>(*table, *options);
        return open(*store) ? reinterpret_cast<row_store*>(store.release()) : nullptr;
    } catch (const std::bad_alloc&) {
        fail(error, ROW_STORE_MEMORY, ENOMEM, -1, "no memory for the store");
        return nullptr;
    }
}

template <class Id>
int gather(row_store* store, const Id* ids, size_t count, uint8_t* weights, uint8_t* scales, row_store_error* error) {
    if (error) memset(error, 0, sizeof *error);
    if (!count) return 1;
    if (!store || !ids || !weights || !scales) return fail(error, ROW_STORE_ARGUMENT, 0, -1, "a pointer is null");
    try {
        return reinterpret_cast<Store*>(store)->gather(ids, count, weights, scales, error);
    } catch (const std::bad_alloc&) {
        return fail(error, ROW_STORE_MEMORY, ENOMEM, -1, "no memory for the batch");
    }
}

}  // namespace
}  // namespace row_store_detail

using row_store_detail::Layout;
using row_store_detail::Store;

extern "C" {

int row_store_abi(void) { return ROW_STORE_ABI; }

row_store* row_store_open_packed(
    const char* path, const row_store_table* table, const row_store_options* options, row_store_error* error) {
    return row_store_detail::open_store(path, table, options, error,
                                        [&](Store& store) { return store.open_packed(path, error); });
}

row_store* row_store_open_tensors(
    const char* path, const row_store_table* table, uint64_t weight_at, uint64_t scale_at,
    const row_store_options* options, row_store_error* error) {
    return row_store_detail::open_store(path, table, options, error, [&](Store& store) {
        return store.open_tensors(path, weight_at, scale_at, error);
    });
}

int row_store_gather32(
    row_store* store, const int32_t* ids, size_t count, uint8_t* weights, uint8_t* scales, row_store_error* error) {
    return row_store_detail::gather(store, ids, count, weights, scales, error);
}

int row_store_gather64(
    row_store* store, const int64_t* ids, size_t count, uint8_t* weights, uint8_t* scales, row_store_error* error) {
    return row_store_detail::gather(store, ids, count, weights, scales, error);
}

void row_store_run(void* given) {
    auto* work = static_cast<row_store_work*>(given);
    row_store_error error;
    if (row_store_gather32(work->store, work->ids, work->count, work->weights, work->scales, &error)) return;
    if (work->store && work->weights) reinterpret_cast<Store*>(work->store)->spoil(work->weights, work->count);
    if (work->error.code == ROW_STORE_OK) work->error = error;
    fprintf(stderr, "row store: %s\n", error.text);
}

void row_store_read_statistics(row_store* store, row_store_statistics* statistics) {
    *statistics = reinterpret_cast<Store*>(store)->statistics();
}

const char* row_store_description(const row_store* store) {
    return reinterpret_cast<const Store*>(store)->description();
}

void row_store_close(row_store* store) { delete reinterpret_cast<Store*>(store); }

void row_store_write_header(const row_store_table* table, int paged, uint8_t* page) {
    row_store_detail::write_header(*table, paged ? Layout::paged : Layout::dense, page);
}

void row_store_seal_page(uint32_t row_bytes, uint64_t number, uint8_t* page) {
    row_store_detail::seal_page(row_bytes, number, page);
}

}  // extern "C"
