#include <sys/mman.h>

#include <cerrno>
#include <cinttypes>
#include <cstring>

#include "store.h"

namespace row_store_detail {
namespace {

constexpr uint32_t kDepth = 256;  // one thread that has to wait for its turn does not leave the disk idle
constexpr uint32_t kThreads = 96;
constexpr uint32_t kMostDepth = 4096;
constexpr uint32_t kLeastAlignment = 64;  // of buffers, where the file asks for none

}  // namespace

Store::~Store() {
    if (scales_) munmap(scales_, scale_length());
}

bool Store::open_packed(const char* path, row_store_error* error) {
    if (!file_.open(path, options_, error) || !start_engine(error)) return false;
    std::vector<uint8_t> first(kPage);
    const int64_t got = read_span(0, kPage, first.data());
    if (got < 0) {
        const int number = static_cast<int>(-got);
        return fail(error, ROW_STORE_OPEN, number, -1, "cannot be read: %s", strerror(number));
    }
    return recognise(first.data(), static_cast<size_t>(got), file_.size(), table_, &layout_, error);
}

bool Store::open_tensors(const char* path, uint64_t weight_at, uint64_t scale_at, row_store_error* error) {
    if (!file_.open(path, options_, error)) return false;
    layout_ = Layout::tensors;
    weight_at_ = weight_at;
    scale_at_ = scale_at;
    const uint64_t weight_end = weight_at + table_.total * table_.weight_bytes;
    const uint64_t end = std::max(weight_end, scale_at + table_.total * table_.scale_bytes);
    if (end > file_.size())
        return fail(error, ROW_STORE_TRUNCATED, 0, -1, "is cut off: %" PRIu64 " bytes, the table ends at %" PRIu64,
                    file_.size(), end);
    return start_engine(error) && (!options_.resident_scales || load_scales(error));
}

bool Store::start_engine(row_store_error* error) {
    const uint32_t most = layout_ == Layout::tensors ? row_bytes(table_) : kPage;
    const uint32_t alignment = std::max(file_.alignment(), kLeastAlignment);
    EngineSetup setup{file_.handle(), kDepth, most + 2 * file_.alignment(), alignment};
    std::string notes = file_.notes();
    engine_ = choose_engine(&setup, &notes);
    if (!engine_) return fail(error, ROW_STORE_ENGINE, 0, -1, "no engine for reads: %s", notes.c_str());
    description_ = std::string(engine_->name()) + ", " + std::to_string(setup.depth) + " at a time, ";
    const std::string block = std::to_string(file_.alignment());
    description_ += file_.is_direct() ? "direct reads of " + block + "-byte blocks" : "buffered reads";
    if (!notes.empty()) description_ += " (" + notes + ")";
    cache_.reset(options_.cache_bytes, row_bytes(table_));
    return true;
}

// The asynchronous ones only where they are: without direct reads they would block at each submission.
std::unique_ptr<ReadEngine> Store::choose_engine(EngineSetup* setup, std::string* notes) const {
    const struct {
        uint32_t engine;
        std::unique_ptr<ReadEngine> (*make)(const EngineSetup&, std::string*);
    } choices[] = {
        {ROW_STORE_IO_URING, make_uring_engine},
        {ROW_STORE_LIBAIO, make_aio_engine},
        {ROW_STORE_THREADS, make_thread_engine},
    };
    for (const auto& choice : choices) {
        const bool is_useful = choice.engine == ROW_STORE_THREADS || file_.can_overlap();
        if (options_.engine == ROW_STORE_PROBE ? !is_useful : options_.engine != choice.engine) continue;
        std::string why;
        setup->depth = choice.engine == ROW_STORE_THREADS ? kThreads : kDepth;
        if (options_.depth) setup->depth = std::min(options_.depth, kMostDepth);
        if (auto engine = choice.make(*setup, &why)) return engine;
        *notes += (notes->empty() ? "" : "; ") + why;
    }
    return nullptr;
}

bool Store::load_scales(row_store_error* error) {
    void* memory = mmap(nullptr, scale_length(), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) return fail(error, ROW_STORE_MEMORY, errno, -1, "no memory for the scales");
    scales_ = static_cast<uint8_t*>(memory);
    const uint64_t from = scale_at_ + table_.low * table_.scale_bytes;
    constexpr uint64_t kStep = 1 << 20;
    for (uint64_t at = 0; at < scale_length(); at += kStep) {
        const auto part = static_cast<uint32_t>(std::min(kStep, scale_length() - at));
        const int64_t got = read_span(from + at, part, scales_ + at);
        if (got == part) continue;
        const int number = got < 0 ? static_cast<int>(-got) : 0;
        const auto row = static_cast<int64_t>(table_.low + at / table_.scale_bytes);
        return fail(error, number ? ROW_STORE_READ : ROW_STORE_SHORT_READ, number, row, "the scales cannot be read");
    }
    return true;
}

int64_t Store::read_span(uint64_t offset, uint32_t length, uint8_t* to) const {
    const Span block = aligned({offset, length});
    const Slots buffer({file_.handle(), 1, block.length, std::max(file_.alignment(), kLeastAlignment)});
    if (!buffer) return -ENOMEM;
    const int64_t got = read_whole(file_.handle(), buffer[0], block.length, block.offset);
    if (got < 0) return got;
    const auto skip = static_cast<int64_t>(offset - block.offset);
    const int64_t useful = std::min<int64_t>(std::max<int64_t>(got - skip, 0), length);
    memcpy(to, buffer[0] + skip, static_cast<size_t>(useful));
    return useful;
}

row_store_statistics Store::statistics() {
    const std::lock_guard<std::mutex> held(mutex_);
    row_store_statistics now = statistics_;
    now.retries = retries_.load();
    now.resident_bytes = engine_->resident_bytes() + seen_.resident_bytes() + cache_.resident_bytes() +
                         rows_.capacity() * sizeof rows_[0] + places_.capacity() * sizeof places_[0] +
                         repeats_.capacity() * sizeof repeats_[0] + (scales_ ? scale_length() : 0);
    return now;
}

}  // namespace row_store_detail
