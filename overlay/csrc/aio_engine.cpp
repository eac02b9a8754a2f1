// The kernel's asynchronous reads (the aio family) by their system calls: allowed where io_uring is not.
#include <linux/aio_abi.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <vector>

#include "read_engine.h"

namespace row_store_detail {
namespace {

class AioEngine final : public ReadEngine {
  public:
    explicit AioEngine(const EngineSetup& setup)
        : setup_(setup), slots_(setup), index_(setup.depth), control_(setup.depth), events_(setup.depth) {
        for (uint32_t slot = 0; slot < setup.depth; slot++) free_.push_back(setup.depth - 1 - slot);
        prepared_.reserve(setup.depth);
    }

    ~AioEngine() override {
        if (context_) syscall(__NR_io_destroy, context_);
    }

    bool open(std::string* why) {
        if (slots_ && syscall(__NR_io_setup, setup_.depth, &context_) == 0) return true;
        *why = std::string("io_setup: ") + strerror(errno);
        return false;
    }

    const char* name() const override { return "libaio"; }
    size_t resident_bytes() const override {
        return slots_.size() + control_.size() * (sizeof(iocb) + sizeof(io_event));
    }

    int run(Reads& reads) override {
        if (broken_) return broken_;
        const size_t count = reads.count();
        size_t next = 0;
        while (true) {
            while (!free_.empty() && next < count && !reads.is_stopped()) prepare(reads, next++);
            if (reads.is_stopped()) next = count;
            if (free_.size() == setup_.depth) return 0;
            if (const int error = submit()) return broken_ = error;
            const long done = wait();
            if (done < 0) return broken_ = static_cast<int>(-done);
            for (long i = 0; i < done; i++) finish(reads, events_[static_cast<size_t>(i)]);
        }
    }

  private:
    void prepare(const Reads& reads, size_t index) {
        const uint32_t slot = free_.back();
        free_.pop_back();
        index_[slot] = index;
        const Span span = reads.span(index);
        iocb& control = control_[slot];
        memset(&control, 0, sizeof control);
        control.aio_data = slot;
        control.aio_lio_opcode = IOCB_CMD_PREAD;
        control.aio_fildes = static_cast<uint32_t>(setup_.file);
        control.aio_buf = reinterpret_cast<uint64_t>(slots_[slot]);
        control.aio_nbytes = span.length;
        control.aio_offset = static_cast<int64_t>(span.offset);
        prepared_.push_back(&control);
    }

    // As many as the kernel takes; the rest stays prepared. An error only when nothing is in flight either.
    int submit() {
        size_t sent = 0;
        while (sent < prepared_.size()) {
            const long taken = syscall(__NR_io_submit, context_, prepared_.size() - sent, prepared_.data() + sent);
            if (taken > 0) {
                sent += static_cast<size_t>(taken);
            } else if (taken < 0 && errno != EINTR) {
                const bool has_others = setup_.depth - free_.size() > prepared_.size() - sent;
                if (errno != EAGAIN || !has_others) return errno;
                break;
            }
        }
        prepared_.erase(prepared_.begin(), prepared_.begin() + static_cast<std::ptrdiff_t>(sent));
        return 0;
    }

    long wait() {
        long done;
        do done = syscall(__NR_io_getevents, context_, 1, static_cast<long>(events_.size()), events_.data(), nullptr);
        while (done < 0 && errno == EINTR);
        return done < 0 ? -errno : done;
    }

    void finish(Reads& reads, const io_event& event) {
        const auto slot = static_cast<uint32_t>(event.data);
        reads.finish(index_[slot], slots_[slot], event.res);
        free_.push_back(slot);
    }

    EngineSetup setup_;
    Slots slots_;
    std::vector<size_t> index_;
    std::vector<uint32_t> free_;
    std::vector<iocb> control_;
    std::vector<iocb*> prepared_;
    std::vector<io_event> events_;
    aio_context_t context_ = 0;
    int broken_ = 0;
};

}  // namespace

std::unique_ptr<ReadEngine> make_aio_engine(const EngineSetup& setup, std::string* why) {
    auto engine = std::make_unique<AioEngine>(setup);
    if (!engine->open(why)) return nullptr;
    return engine;
}

}  // namespace row_store_detail
