// One table's rows in one file: opening it, choosing how to read, and gathering batches of rows.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "direct_file.h"
#include "packed_format.h"
#include "read_engine.h"
#include "row_cache.h"
#include "row_store.h"
#include "seen_ids.h"

namespace row_store_detail {

class Store final : private Reads {
  public:
    Store(const row_store_table& table, const row_store_options& options) : table_(table), options_(options) {}
    ~Store();

    // store_open.cpp
    bool open_packed(const char* path, row_store_error* error);
    bool open_tensors(const char* path, uint64_t weight_at, uint64_t scale_at, row_store_error* error);
    const char* description() const { return description_.c_str(); }
    row_store_statistics statistics();

    // store_gather.cpp, for int32_t and int64_t
    template <class Id>
    bool gather(const Id* ids, size_t count, uint8_t* weights, uint8_t* scales, row_store_error* error);

    // Every value of these rows becomes NaN, the one that e4m3 has.
    void spoil(uint8_t* weights, size_t count) const { memset(weights, 0x7F, count * table_.weight_bytes); }

  private:
    struct Repeat {
        uint32_t place, first;
    };

    bool start_engine(row_store_error* error);
    std::unique_ptr<ReadEngine> choose_engine(EngineSetup* setup, std::string* notes) const;
    bool load_scales(row_store_error* error);
    uint64_t scale_length() const { return (table_.high - table_.low) * table_.scale_bytes; }

    // Any bytes of the file, in this thread: how many came, or a negative errno.
    int64_t read_span(uint64_t offset, uint32_t length, uint8_t* to) const;

    template <class Id>
    bool slice(const Id* ids, size_t count);
    bool sort_out(int64_t id, uint32_t place);
    bool read_rows();

    size_t count() const override { return is_split() ? 2 * rows_.size() : rows_.size(); }
    bool is_stopped() const override { return failed_.load(std::memory_order_relaxed); }
    Span span(size_t index) const override { return aligned(needed(index)); }
    void finish(size_t index, const uint8_t* data, int64_t result) override;
    void try_again(size_t index, Span want, int64_t result);
    void deliver(size_t index, const uint8_t* data);
    void stop(int code, int number, int64_t row, const char* text);

    // A row is one read, or two where weight and scale lie apart.
    bool is_split() const { return layout_ == Layout::tensors && !scales_; }
    bool is_scale(size_t index) const { return is_split() && index % 2; }
    uint64_t row_of(size_t index) const { return rows_[is_split() ? index / 2 : index]; }
    uint32_t place_of(size_t index) const { return places_[is_split() ? index / 2 : index]; }
    uint64_t page_of(uint64_t row) const { return (row - table_.low) / rows_per_page(row_bytes(table_)); }
    Span needed(size_t index) const;
    Span aligned(Span needed) const;
    uint8_t* weight(uint32_t place) const { return weights_out_ + size_t{place} * table_.weight_bytes; }
    uint8_t* scale(uint32_t place) const { return scales_out_ + size_t{place} * table_.scale_bytes; }

    const row_store_table table_;
    const row_store_options options_;
    DirectFile file_;
    Layout layout_ = Layout::dense;
    uint64_t weight_at_ = 0, scale_at_ = 0;  // of the tensors in a checkpoint
    uint8_t* scales_ = nullptr;              // the owned ones, when they are resident
    std::unique_ptr<ReadEngine> engine_;
    std::string description_;
    RowCache cache_;

    std::mutex mutex_;  // one batch at a time; what follows belongs to it
    SeenIds seen_;
    std::vector<uint64_t> rows_;    // to read
    std::vector<uint32_t> places_;  // where each goes
    std::vector<Repeat> repeats_;
    uint8_t *weights_out_ = nullptr, *scales_out_ = nullptr;
    row_store_error* error_ = nullptr;
    row_store_statistics statistics_{};
    std::atomic<uint64_t> straddling_{0}, bytes_{0}, retries_{0};  // several threads may finish reads
    std::atomic<bool> failed_{false};
    std::mutex failure_;
};

}  // namespace row_store_detail
