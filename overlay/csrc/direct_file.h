// A file opened for reads that bypass the page cache, where that works, and the alignment such reads need.
#pragma once

#include <cstdint>
#include <string>

#include "row_store.h"

namespace row_store_detail {

class DirectFile {
  public:
    DirectFile() = default;
    ~DirectFile();
    DirectFile(const DirectFile&) = delete;
    DirectFile& operator=(const DirectFile&) = delete;

    // Falls back to the page cache with the reason in `notes`; false only when the file cannot be read at all.
    bool open(const char* path, const row_store_options& options, row_store_error* error);

    int handle() const { return handle_; }
    uint64_t size() const { return size_; }
    uint32_t alignment() const { return alignment_; }  // 1 for buffered reads
    bool is_direct() const { return is_direct_; }
    bool can_overlap() const { return is_direct_ && !is_zfs_; }  // asynchronous reads really are
    const std::string& notes() const { return notes_; }

  private:
    bool try_direct(const char* path, uint32_t wanted);
    bool test_read(uint32_t alignment);
    void note(const std::string& what);

    int handle_ = -1;
    uint64_t size_ = 0;
    uint32_t alignment_ = 1;
    bool is_direct_ = false;
    bool is_zfs_ = false;
    std::string notes_;
};

}  // namespace row_store_detail
