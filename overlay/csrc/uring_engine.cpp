// io_uring by its system calls. One ring, one thread; buffers and the file are registered where the limits allow it.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "read_engine.h"

#ifndef IORING_SETUP_COOP_TASKRUN
#define IORING_SETUP_COOP_TASKRUN (1U << 8)
#endif

namespace row_store_detail {
namespace {

struct Mapping {
    void* at = MAP_FAILED;
    size_t size = 0;

    bool map(int file, size_t bytes, off_t what) {
        size = bytes;
        at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, what);
        return at != MAP_FAILED;
    }
    template <class T>
    T* as(size_t offset) const {
        return reinterpret_cast<T*>(static_cast<char*>(at) + offset);
    }
    ~Mapping() {
        if (at != MAP_FAILED) munmap(at, size);
    }
};

// Reads that are begun at once. Many at once leave the disk with nothing to do until the last of them is prepared: a
// twentieth of its pace with 192, and one each costs a system call each.
constexpr uint32_t kBurst = 16;
constexpr uint32_t kShare = 4;  // of the depth: so many reads are done when the caller is woken

class UringEngine final : public ReadEngine {
  public:
    explicit UringEngine(const EngineSetup& setup) : setup_(setup), slots_(setup), index_(setup.depth) {
        for (uint32_t slot = 0; slot < setup.depth; slot++) free_.push_back(setup.depth - 1 - slot);
    }

    ~UringEngine() override {
        if (ring_ >= 0) close(ring_);
    }

    bool open(std::string* why) {
        if (!slots_) return refused("memory", why);
        io_uring_params params{};
        params.flags = IORING_SETUP_COOP_TASKRUN;
        ring_ = setup_ring(&params);
        if (ring_ < 0 && errno == EINVAL) {  // before Linux 5.19
            params = {};
            ring_ = setup_ring(&params);
        }
        if (ring_ < 0) return refused("io_uring_setup", why);
        if (!map(params)) return refused("mmap of the ring", why);
        register_all();
        return true;
    }

    const char* name() const override { return "io_uring"; }
    size_t resident_bytes() const override { return slots_.size() + queue_.size + completions_.size + entries_.size; }

    int run(Reads& reads) override {
        if (broken_) return broken_;
        const size_t count = reads.count();
        size_t next = 0, flying = 0;
        while (next < count || flying) {
            for (uint32_t begun = 0; begun < kBurst && !free_.empty() && next < count && !reads.is_stopped(); begun++)
                prepare(reads, next++);
            if (reads.is_stopped()) next = count;
            flying = setup_.depth - free_.size();
            if (!flying) break;
            // Nothing is waited for while there is something to do; the last ones are waited for once.
            const bool is_idle = (free_.empty() || next == count) && !is_any_done();
            const size_t enough = next < count ? std::max(1U, setup_.depth / kShare) : flying;
            const size_t awaited = is_idle ? std::min(flying, enough) : 0;
            if (const int error = enter(static_cast<uint32_t>(awaited))) return broken_ = error;
            reap(reads);
            flying = setup_.depth - free_.size();
        }
        return 0;
    }

  private:
    int setup_ring(io_uring_params* params) {
        return static_cast<int>(syscall(__NR_io_uring_setup, setup_.depth, params));
    }

    static bool refused(const char* what, std::string* why) {
        *why = std::string(what) + ": " + strerror(errno);
        return false;
    }

    bool map(const io_uring_params& params) {
        size_t queue = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
        const size_t completions = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
        const bool is_one = params.features & IORING_FEAT_SINGLE_MMAP;
        if (is_one && completions > queue) queue = completions;
        if (!queue_.map(ring_, queue, IORING_OFF_SQ_RING)) return false;
        if (!is_one && !completions_.map(ring_, completions, IORING_OFF_CQ_RING)) return false;
        if (!entries_.map(ring_, params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)) return false;
        const Mapping& done = is_one ? queue_ : completions_;
        sq_head_ = queue_.as<uint32_t>(params.sq_off.head);
        sq_tail_ = queue_.as<uint32_t>(params.sq_off.tail);
        sq_mask_ = *queue_.as<uint32_t>(params.sq_off.ring_mask);
        sq_array_ = queue_.as<uint32_t>(params.sq_off.array);
        cq_head_ = done.as<uint32_t>(params.cq_off.head);
        cq_tail_ = done.as<uint32_t>(params.cq_off.tail);
        cq_mask_ = *done.as<uint32_t>(params.cq_off.ring_mask);
        cqes_ = done.as<io_uring_cqe>(params.cq_off.cqes);
        sqes_ = entries_.as<io_uring_sqe>(0);
        return true;
    }

    // Both only save work for the kernel. The buffers count as locked memory, of which a container may have little.
    void register_all() {
        iovec all{slots_.memory(), slots_.size()};
        has_buffers_ = syscall(__NR_io_uring_register, ring_, IORING_REGISTER_BUFFERS, &all, 1) == 0;
        has_file_ = syscall(__NR_io_uring_register, ring_, IORING_REGISTER_FILES, &setup_.file, 1) == 0;
    }

    void prepare(const Reads& reads, size_t index) {
        const uint32_t slot = free_.back();
        free_.pop_back();
        index_[slot] = index;
        const Span span = reads.span(index);
        const uint32_t tail = *sq_tail_;
        io_uring_sqe& entry = sqes_[tail & sq_mask_];
        memset(&entry, 0, sizeof entry);
        entry.opcode = has_buffers_ ? IORING_OP_READ_FIXED : IORING_OP_READ;
        entry.flags = has_file_ ? IOSQE_FIXED_FILE : 0;
        entry.fd = has_file_ ? 0 : setup_.file;
        entry.off = span.offset;
        entry.addr = reinterpret_cast<uint64_t>(slots_[slot]);
        entry.len = span.length;
        entry.user_data = slot;
        sq_array_[tail & sq_mask_] = tail & sq_mask_;
        __atomic_store_n(sq_tail_, tail + 1, __ATOMIC_RELEASE);
    }

    // Submits all that is prepared and waits until `enough` reads are done.
    int enter(uint32_t enough) {
        for (;;) {
            const uint32_t waiting = *sq_tail_ - __atomic_load_n(sq_head_, __ATOMIC_ACQUIRE);
            if (syscall(__NR_io_uring_enter, ring_, waiting, enough, IORING_ENTER_GETEVENTS, nullptr, 0) >= 0) return 0;
            if (errno == EINTR) continue;
            // Short of memory for requests: those in flight will give some back. None in flight, and it is over.
            const bool has_others = setup_.depth - free_.size() > waiting;
            if ((errno != EAGAIN && errno != EBUSY) || !has_others) return errno;
            if (syscall(__NR_io_uring_enter, ring_, 0, 1, IORING_ENTER_GETEVENTS, nullptr, 0) >= 0) return 0;
            if (errno != EINTR) return errno;
        }
    }

    bool is_any_done() const { return *cq_head_ != __atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE); }

    // No more than a burst of those that are done: their slots are put to use before the next ones are looked at.
    void reap(Reads& reads) {
        uint32_t head = *cq_head_;
        const uint32_t tail = head + std::min(__atomic_load_n(cq_tail_, __ATOMIC_ACQUIRE) - head, kBurst);
        for (; head != tail; head++) {
            const io_uring_cqe& done = cqes_[head & cq_mask_];
            const auto slot = static_cast<uint32_t>(done.user_data);
            reads.finish(index_[slot], slots_[slot], done.res);
            free_.push_back(slot);
        }
        __atomic_store_n(cq_head_, head, __ATOMIC_RELEASE);
    }

    EngineSetup setup_;
    Slots slots_;
    std::vector<size_t> index_;
    std::vector<uint32_t> free_;
    Mapping queue_, completions_, entries_;
    int ring_ = -1;
    int broken_ = 0;
    bool has_buffers_ = false, has_file_ = false;
    uint32_t *sq_head_ = nullptr, *sq_tail_ = nullptr, *sq_array_ = nullptr, sq_mask_ = 0;
    uint32_t *cq_head_ = nullptr, *cq_tail_ = nullptr, cq_mask_ = 0;
    io_uring_sqe* sqes_ = nullptr;
    io_uring_cqe* cqes_ = nullptr;
};

}  // namespace

std::unique_ptr<ReadEngine> make_uring_engine(const EngineSetup& setup, std::string* why) {
    auto engine = std::make_unique<UringEngine>(setup);
    if (!engine->open(why)) return nullptr;
    return engine;
}

}  // namespace row_store_detail
