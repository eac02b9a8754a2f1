// Which ids of a slice came before: of those only the first has to be read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace row_store_detail {

// Finds ids that came before in the slice. Entries of earlier slices are told by their generation, not erased.
class SeenIds {
  public:
    static constexpr size_t kMost = 65536;  // ids of one slice

    SeenIds() : entries_(2 * kMost) {}

    void begin() {
        if (++generation_ == 0) {
            std::fill(entries_.begin(), entries_.end(), Entry{});
            generation_ = 1;
        }
    }

    // The place at which the id came first; `place` itself when it had not come yet.
    uint32_t first(uint64_t id, uint32_t place) {
        for (size_t at = (id * 0x9E3779B97F4A7C15u) >> 47;; at = (at + 1) % entries_.size()) {
            Entry& entry = entries_[at];
            if (entry.generation != generation_) {
                entry = {id, place, generation_};
                return place;
            }
            if (entry.id == id) return entry.place;
        }
    }

    size_t resident_bytes() const { return entries_.size() * sizeof(Entry); }

  private:
    struct Entry {
        uint64_t id = 0;
        uint32_t place = 0;
        uint32_t generation = 0;
    };
    std::vector<Entry> entries_;
    uint32_t generation_ = 0;
};
static_assert(2 * SeenIds::kMost == 1u << 17, "the hash above yields 17 bits");

}  // namespace row_store_detail
