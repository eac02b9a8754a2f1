// A set-associative cache of rows in memory that is allocated once. Off unless it is given any.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

namespace row_store_detail {

class RowCache {
  public:
    void reset(uint64_t bytes, uint32_t row) {
        row_ = row;
        sets_ = bytes / (kWays * (row + sizeof(uint64_t)));
        tags_.assign(sets_ * kWays, kNone);
        turn_.assign(sets_, 0);
        rows_.resize(sets_ * kWays * row);
    }

    bool is_on() const { return sets_ > 0; }

    bool get(uint64_t id, uint8_t* weight, uint8_t* scale, uint32_t weight_bytes) const {
        const uint64_t first = set_of(id) * kWays;
        for (uint64_t line = first; line < first + kWays; line++) {
            if (tags_[line] != id) continue;
            memcpy(weight, &rows_[line * row_], weight_bytes);
            memcpy(scale, &rows_[line * row_ + weight_bytes], row_ - weight_bytes);
            return true;
        }
        return false;
    }

    void put(uint64_t id, const uint8_t* weight, const uint8_t* scale, uint32_t weight_bytes) {
        const uint64_t set = set_of(id), line = set * kWays + turn_[set]++ % kWays;
        tags_[line] = id;
        memcpy(&rows_[line * row_], weight, weight_bytes);
        memcpy(&rows_[line * row_ + weight_bytes], scale, row_ - weight_bytes);
    }

    uint64_t resident_bytes() const { return tags_.size() * sizeof(uint64_t) + turn_.size() + rows_.size(); }

  private:
    static constexpr uint64_t kWays = 4;
    static constexpr uint64_t kNone = ~uint64_t{0};

    uint64_t set_of(uint64_t id) const { return ((id * 0x9E3779B97F4A7C15u) >> 20) % sets_; }

    uint32_t row_ = 0;
    uint64_t sets_ = 0;
    std::vector<uint64_t> tags_;
    std::vector<uint8_t> turn_;  // which way is overwritten next
    std::vector<uint8_t> rows_;
};

}  // namespace row_store_detail
