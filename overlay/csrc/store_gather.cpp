#include <cerrno>
#include <chrono>
#include <cinttypes>
#include <cstring>

#include "store.h"

namespace row_store_detail {

template <class Id>
bool Store::gather(const Id* ids, size_t count, uint8_t* weights, uint8_t* scales, row_store_error* error) {
    const std::lock_guard<std::mutex> held(mutex_);
    const auto began = std::chrono::steady_clock::now();
    error_ = error;
    for (size_t at = 0; at < count; at += SeenIds::kMost) {
        weights_out_ = weights + at * table_.weight_bytes;
        scales_out_ = scales + at * table_.scale_bytes;
        if (!slice(ids + at, std::min(SeenIds::kMost, count - at))) return false;
    }
    const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - began;
    statistics_.batches++;
    statistics_.ids += count;
    statistics_.nanoseconds += static_cast<uint64_t>(took.count());
    statistics_.slowest = std::max(statistics_.slowest, static_cast<uint64_t>(took.count()));
    return true;
}

template bool Store::gather(const int32_t*, size_t, uint8_t*, uint8_t*, row_store_error*);
template bool Store::gather(const int64_t*, size_t, uint8_t*, uint8_t*, row_store_error*);

// The store's own memory does not grow with the batch: it is cut into slices.
template <class Id>
bool Store::slice(const Id* ids, size_t count) {
    rows_.clear();
    places_.clear();
    repeats_.clear();
    seen_.begin();
    for (uint32_t place = 0; place < count; place++)
        if (!sort_out(ids[place], place)) return false;
    if (!read_rows()) return false;
    for (const Repeat& repeat : repeats_) {
        memcpy(weight(repeat.place), weight(repeat.first), table_.weight_bytes);
        memcpy(scale(repeat.place), scale(repeat.first), table_.scale_bytes);
    }
    return true;
}

// Zeros, a row of the cache, the same as an earlier one, or one to read.
bool Store::sort_out(int64_t id, uint32_t place) {
    const auto row = static_cast<uint64_t>(id);
    if (id >= 0 && row >= table_.total)
        return fail(error_, ROW_STORE_OUT_OF_TABLE, 0, id, "row %" PRId64 ": the table has %" PRIu64, id, table_.total);
    if (id < 0 || row < table_.low || row >= table_.high) {
        memset(weight(place), 0, table_.weight_bytes);
        memset(scale(place), 0, table_.scale_bytes);
        statistics_.zero_rows++;
    } else if (cache_.is_on() && cache_.get(row, weight(place), scale(place), table_.weight_bytes)) {
        statistics_.cache_hits++;
    } else if (const uint32_t first = seen_.first(row, place); first != place) {
        repeats_.push_back({place, first});
        statistics_.duplicates++;
    } else {
        rows_.push_back(row);
        places_.push_back(place);
    }
    return true;
}

bool Store::read_rows() {
    straddling_ = 0;
    bytes_ = 0;
    failed_ = false;
    const int broken = engine_->run(*this);
    if (broken) return fail(error_, ROW_STORE_ENGINE, broken, -1, "%s: %s", engine_->name(), strerror(broken));
    statistics_.reads += count();
    statistics_.straddling += straddling_;
    statistics_.bytes += bytes_;
    if (failed_) return false;
    for (size_t i = 0; i < rows_.size() && cache_.is_on(); i++)
        cache_.put(rows_[i], weight(places_[i]), scale(places_[i]), table_.weight_bytes);
    return true;
}

// Which bytes of the file a read is about.
Span Store::needed(size_t index) const {
    const uint64_t row = row_of(index);
    switch (layout_) {
        case Layout::dense: return {kPage + (row - table_.low) * row_bytes(table_), row_bytes(table_)};
        case Layout::paged: return {kPage + page_of(row) * kPage, kPage};
        case Layout::tensors: break;
    }
    if (is_scale(index)) return {scale_at_ + row * table_.scale_bytes, table_.scale_bytes};
    return {weight_at_ + row * table_.weight_bytes, table_.weight_bytes};
}

Span Store::aligned(Span needed) const {
    const uint64_t mask = file_.alignment() - 1, from = needed.offset & ~mask;
    return {from, static_cast<uint32_t>(((needed.offset + needed.length + mask) & ~mask) - from)};
}

void Store::finish(size_t index, const uint8_t* data, int64_t result) {
    const Span want = needed(index), block = aligned(want);
    const auto skip = static_cast<uint32_t>(want.offset - block.offset);
    bytes_.fetch_add(block.length, std::memory_order_relaxed);
    if (block.length >= want.length + file_.alignment()) straddling_.fetch_add(1, std::memory_order_relaxed);
    if (result < int64_t{skip} + want.length) {
        try_again(index, want, result);
    } else {
        deliver(index, data + skip);
    }
}

// A read that was interrupted or came back short is tried once more, at leisure; then it counts.
void Store::try_again(size_t index, Span want, int64_t result) {
    retries_.fetch_add(1, std::memory_order_relaxed);
    std::vector<uint8_t> bytes(want.length);
    const bool is_final = result < 0 && result != -EINTR && result != -EAGAIN;
    const int64_t got = is_final ? result : read_span(want.offset, want.length, bytes.data());
    if (got == want.length) return deliver(index, bytes.data());
    const auto row = static_cast<int64_t>(row_of(index));
    if (got < 0) return stop(ROW_STORE_READ, static_cast<int>(-got), row, strerror(static_cast<int>(-got)));
    stop(ROW_STORE_SHORT_READ, 0, row, "the file ends inside the row");
}

void Store::deliver(size_t index, const uint8_t* data) {
    const uint64_t row = row_of(index);
    const uint32_t place = place_of(index);
    if (is_scale(index)) {
        memcpy(scale(place), data, table_.scale_bytes);
        return;
    }
    if (layout_ == Layout::paged) {
        if (!options_.unchecked && !page_is_whole(row_bytes(table_), page_of(row), data))
            return stop(ROW_STORE_BAD_PAGE, 0, static_cast<int64_t>(row), "the page is not as it was written");
        data += (row - table_.low) % rows_per_page(row_bytes(table_)) * row_bytes(table_);
    }
    memcpy(weight(place), data, table_.weight_bytes);
    if (layout_ != Layout::tensors) memcpy(scale(place), data + table_.weight_bytes, table_.scale_bytes);
    if (scales_) memcpy(scale(place), scales_ + (row - table_.low) * table_.scale_bytes, table_.scale_bytes);
}

void Store::stop(int code, int number, int64_t row, const char* text) {
    const std::lock_guard<std::mutex> held(failure_);
    if (!failed_.exchange(true)) fail(error_, code, number, row, "row %" PRId64 ": %s", row, text);
}

}  // namespace row_store_detail
