// Blocking reads in a pool of threads, for files and systems without asynchronous ones. The caller works along.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "read_engine.h"

namespace row_store_detail {

Slots::Slots(const EngineSetup& setup)
    : stride_((setup.slot + setup.alignment - 1) / setup.alignment * setup.alignment), size_(stride_ * setup.depth) {
    void* memory = mmap(nullptr, size_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memory_ = memory == MAP_FAILED ? nullptr : static_cast<uint8_t*>(memory);
}

Slots::~Slots() {
    if (memory_) munmap(memory_, size_);
}

int64_t read_whole(int file, uint8_t* to, uint32_t length, uint64_t offset) {
    uint32_t got = 0;
    while (got < length) {
        const ssize_t part = pread(file, to + got, length - got, static_cast<off_t>(offset + got));
        if (part < 0 && errno == EINTR) continue;
        // A direct read that stopped at the end of the file may not go on from there: that offset is not aligned.
        if (part == 0 || (part < 0 && got && errno == EINVAL)) break;
        if (part < 0) return -errno;
        got += static_cast<uint32_t>(part);
    }
    return got;
}

namespace {

class ThreadEngine final : public ReadEngine {
  public:
    explicit ThreadEngine(const EngineSetup& setup) : setup_(setup), slots_(setup) {}

    ~ThreadEngine() override {
        {
            const std::lock_guard<std::mutex> held(mutex_);
            is_ending_ = true;
        }
        wake_.notify_all();
        for (std::thread& thread : threads_) thread.join();
    }

    // The caller is one of the `depth`, so a depth of one starts no thread at all.
    bool open(std::string* why) {
        if (!slots_) {
            *why = std::string("memory: ") + strerror(errno);
            return false;
        }
        try {
            for (uint32_t slot = 1; slot < setup_.depth; slot++) threads_.emplace_back([this, slot] { serve(slot); });
        } catch (const std::system_error& error) {
            *why = std::string("thread: ") + error.what();
            return false;
        }
        return true;
    }

    const char* name() const override { return "threads"; }
    size_t resident_bytes() const override { return slots_.size() + threads_.size() * 16384; }

    int run(Reads& reads) override {
        const size_t helpers = std::min(threads_.size(), reads.count() ? reads.count() - 1 : 0);
        {
            const std::lock_guard<std::mutex> held(mutex_);
            reads_ = &reads;
            next_ = 0;
            tickets_ = helpers;
        }
        for (size_t i = 0; i < helpers; i++) wake_.notify_one();
        work(reads, 0);
        std::unique_lock<std::mutex> held(mutex_);
        tickets_ = 0;  // who has not begun by now finds nothing to do
        idle_.wait(held, [this] { return busy_ == 0; });
        reads_ = nullptr;
        return 0;
    }

  private:
    void serve(uint32_t slot) {
        std::unique_lock<std::mutex> held(mutex_);
        for (;;) {
            wake_.wait(held, [this] { return is_ending_ || tickets_ > 0; });
            if (is_ending_) return;
            tickets_--;
            busy_++;
            Reads& reads = *reads_;
            held.unlock();
            work(reads, slot);
            held.lock();
            if (--busy_ == 0) idle_.notify_one();
        }
    }

    void work(Reads& reads, uint32_t slot) {
        const size_t count = reads.count();
        while (!reads.is_stopped()) {
            const size_t index = next_.fetch_add(1, std::memory_order_relaxed);
            if (index >= count) return;
            const Span span = reads.span(index);
            reads.finish(index, slots_[slot], read_whole(setup_.file, slots_[slot], span.length, span.offset));
        }
    }

    EngineSetup setup_;
    Slots slots_;
    std::vector<std::thread> threads_;
    std::mutex mutex_;
    std::condition_variable wake_, idle_;
    Reads* reads_ = nullptr;
    std::atomic<size_t> next_{0};
    size_t tickets_ = 0, busy_ = 0;
    bool is_ending_ = false;
};

}  // namespace

std::unique_ptr<ReadEngine> make_thread_engine(const EngineSetup& setup, std::string* why) {
    auto engine = std::make_unique<ThreadEngine>(setup);
    if (!engine->open(why)) return nullptr;
    return engine;
}

}  // namespace row_store_detail
