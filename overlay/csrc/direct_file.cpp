#include "direct_file.h"

#include <fcntl.h>
#include <linux/fs.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "packed_format.h"
#include "read_engine.h"

namespace row_store_detail {
namespace {

constexpr uint32_t kUsualAlignment = 4096;
constexpr uint32_t kMostAlignment = 65536;
constexpr uint32_t kZfs = 0x2fc12fc1;

// The part of `struct statx` that is needed: headers older than Linux 6.1 do not have the last two fields.
struct Statx {
    uint32_t mask, block_size;
    uint8_t skipped[144];
    uint32_t memory_alignment, offset_alignment;
    uint8_t rest[96];
};
static_assert(sizeof(Statx) == 256, "the size of struct statx is fixed");
constexpr uint32_t kDirectAlignment = 0x2000;  // STATX_DIOALIGN
constexpr int kEmptyPath = 0x1000;             // AT_EMPTY_PATH

uint32_t told_by_statx(int file) {
    Statx seen{};
    if (syscall(__NR_statx, file, "", kEmptyPath, kDirectAlignment, &seen) != 0) return 0;
    if (!(seen.mask & kDirectAlignment)) return 0;
    return seen.offset_alignment > seen.memory_alignment ? seen.offset_alignment : seen.memory_alignment;
}

uint32_t told_by_device(const struct stat& seen, int file) {
    int size = 0;
    if (S_ISBLK(seen.st_mode)) return ioctl(file, BLKSSZGET, &size) == 0 ? static_cast<uint32_t>(size) : 0;
    for (const char* below : {"", "/.."}) {  // a partition has its queue one folder up
        char path[96];
        snprintf(path, sizeof path, "/sys/dev/block/%u:%u%s/queue/logical_block_size", major(seen.st_dev),
                 minor(seen.st_dev), below);
        if (FILE* file_of_size = fopen(path, "re")) {
            const int found = fscanf(file_of_size, "%d", &size);
            fclose(file_of_size);
            if (found == 1 && size > 0) return static_cast<uint32_t>(size);
        }
    }
    return 0;
}

bool is_possible(uint32_t alignment) {
    return alignment >= 512 && alignment <= kMostAlignment && (alignment & (alignment - 1)) == 0;
}

}  // namespace

DirectFile::~DirectFile() {
    if (handle_ >= 0) close(handle_);
}

bool DirectFile::open(const char* path, const row_store_options& options, row_store_error* error) {
    if (options.alignment && !is_possible(options.alignment))
        return fail(error, ROW_STORE_ARGUMENT, 0, -1, "an alignment of %u is none", options.alignment);
    if (options.buffered) {
        note("through the page cache, as asked");
    } else if (try_direct(path, options.alignment)) {
        is_direct_ = true;
    }
    if (!is_direct_) {
        handle_ = ::open(path, O_RDONLY | O_CLOEXEC);
        alignment_ = 1;
    }
    struct stat seen {};
    if (handle_ < 0 || fstat(handle_, &seen) != 0)
        return fail(error, ROW_STORE_OPEN, errno, -1, "cannot be opened: %s", strerror(errno));
    if (!S_ISREG(seen.st_mode))
        return fail(error, ROW_STORE_OPEN, 0, -1, "is not a file");
    size_ = static_cast<uint64_t>(seen.st_size);
    struct statfs system {};
    is_zfs_ = fstatfs(handle_, &system) == 0 && static_cast<uint32_t>(system.f_type) == kZfs;
    if (is_zfs_) note("ZFS answers direct reads one by one");
    if (!is_direct_) posix_fadvise(handle_, 0, 0, POSIX_FADV_RANDOM);
    return true;
}

// Opening is not proof: some file systems take the flag and refuse the read.
bool DirectFile::try_direct(const char* path, uint32_t wanted) {
    handle_ = ::open(path, O_RDONLY | O_CLOEXEC | O_DIRECT);
    if (handle_ < 0) {
        if (errno == EINVAL) note("O_DIRECT refused by the file system");
        return false;
    }
    struct stat seen {};
    fstat(handle_, &seen);
    const uint32_t guesses[] = {wanted, told_by_statx(handle_), told_by_device(seen, handle_), kUsualAlignment};
    for (const uint32_t alignment : guesses) {
        if (is_possible(alignment) && test_read(alignment)) {
            alignment_ = alignment;
            return true;
        }
    }
    note(std::string("direct reads refused: ") + strerror(errno));
    close(handle_);
    handle_ = -1;
    return false;
}

bool DirectFile::test_read(uint32_t alignment) {
    void* page = mmap(nullptr, kMostAlignment, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return false;
    const int64_t got = read_whole(handle_, static_cast<uint8_t*>(page), alignment, 0);
    munmap(page, kMostAlignment);
    if (got < 0) errno = static_cast<int>(-got);
    return got >= 0;
}

void DirectFile::note(const std::string& what) { notes_ += (notes_.empty() ? "" : "; ") + what; }

}  // namespace row_store_detail
