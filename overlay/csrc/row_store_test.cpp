// The row store against tables that are known byte for byte: fuzzed ids on every engine and source, and every refusal.
//   row_store_test FOLDER [SEED]       prints what it did; exit code 1 and the reason at the first difference
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "row_store.h"

namespace {

constexpr uint32_t kWeight = 256, kScale = 8, kRow = kWeight + kScale;
const row_store_table kTable{14, 700, 4311, 5000, kWeight, kScale};
const char* const kEngines[] = {"probe", "io_uring", "libaio", "threads"};

std::atomic<int64_t> failing_offset{-1};  // pread of a span with this byte fails with EIO ...
std::atomic<int> interruptions{0};        // ... or is interrupted this many times ...
std::atomic<bool> is_halving{false};      // ... or gives half of what was asked for

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            printf("row_store_test.cpp:%d: not so: %s\n", __LINE__, #condition);    \
            exit(1);                                                                \
        }                                                                           \
    } while (0)

uint8_t byte_of(uint64_t row, uint32_t at) {
    return static_cast<uint8_t>((row * 2654435761u + at * 40503u + (row >> 7) * at) >> 8);
}

using Bytes = std::vector<uint8_t>;

Bytes row(uint64_t id) {
    Bytes bytes(kRow);
    for (uint32_t at = 0; at < kRow; at++) bytes[at] = byte_of(id, at);
    return bytes;
}

void append(Bytes& to, const Bytes& bytes) { to.insert(to.end(), bytes.begin(), bytes.end()); }

Bytes dense_file() {
    Bytes file(ROW_STORE_PAGE);
    row_store_write_header(&kTable, 0, file.data());
    for (uint64_t id = kTable.low; id < kTable.high; id++) append(file, row(id));
    return file;
}

Bytes paged_file() {
    Bytes file(ROW_STORE_PAGE);
    row_store_write_header(&kTable, 1, file.data());
    uint64_t number = 0;
    for (uint64_t id = kTable.low; id < kTable.high; number++) {
        Bytes page;
        for (int i = 0; i < 15 && id < kTable.high; i++) append(page, row(id++));
        page.resize(ROW_STORE_PAGE);
        row_store_seal_page(kRow, number, page.data());
        append(file, page);
    }
    return file;
}

constexpr uint64_t kWeightAt = 1003, kScaleAt = kWeightAt + 5000 * kWeight + 77;  // as unaligned as a header leaves it

Bytes tensor_file() {
    Bytes file(kScaleAt + kTable.total * kScale);
    for (uint64_t id = 0; id < kTable.total; id++) {
        const Bytes bytes = row(id);
        memcpy(&file[kWeightAt + id * kWeight], bytes.data(), kWeight);
        memcpy(&file[kScaleAt + id * kScale], bytes.data() + kWeight, kScale);
    }
    return file;
}

std::string write_file(const std::string& path, const Bytes& bytes) {
    FILE* file = fopen(path.c_str(), "wb");
    CHECK(file && (bytes.empty() || fwrite(bytes.data(), 1, bytes.size(), file) == bytes.size()) && fclose(file) == 0);
    return path;
}

struct Opened {
    row_store* store;
    row_store_error error;
    Opened(row_store* opened, const row_store_error& why) : store(opened), error(why) {}
    Opened(const Opened&) = delete;
    ~Opened() {
        if (store) row_store_close(store);
    }
};

Opened open_packed(const std::string& path, const row_store_options& options, const row_store_table& table = kTable) {
    row_store_error error;
    row_store* store = row_store_open_packed(path.c_str(), &table, &options, &error);
    return {store, error};
}

Opened open_tensors(const std::string& path, const row_store_options& options) {
    row_store_error error;
    row_store* store = row_store_open_tensors(path.c_str(), &kTable, kWeightAt, kScaleAt, &options, &error);
    return {store, error};
}

bool is_owned(int64_t id) { return id >= int64_t(kTable.low) && id < int64_t(kTable.high); }

void expect_rows(row_store* store, const std::vector<int64_t>& ids, bool is_narrow) {
    Bytes weights(ids.size() * kWeight, 0xA5), scales(ids.size() * kScale, 0xA5);
    const std::vector<int32_t> narrow(ids.begin(), ids.end());
    row_store_error error;
    const int good = is_narrow
        ? row_store_gather32(store, narrow.data(), ids.size(), weights.data(), scales.data(), &error)
        : row_store_gather64(store, ids.data(), ids.size(), weights.data(), scales.data(), &error);
    if (!good) printf("%s\n", error.text);
    CHECK(good);
    for (size_t i = 0; i < ids.size(); i++) {
        const Bytes want = is_owned(ids[i]) ? row(static_cast<uint64_t>(ids[i])) : Bytes(kRow);
        CHECK(memcmp(&weights[i * kWeight], want.data(), kWeight) == 0);
        CHECK(memcmp(&scales[i * kScale], want.data() + kWeight, kScale) == 0);
    }
}

std::vector<int64_t> random_ids(std::mt19937_64& random, size_t count) {
    std::vector<int64_t> ids(count);
    for (auto& id : ids) {
        const auto kind = random() % 16;
        if (kind == 0) id = -1 - int64_t(random() % 1000);                                   // dead
        else if (kind < 3) id = int64_t(random() % kTable.total);                            // anybody's
        else if (kind < 8) id = int64_t(kTable.low + (random() % 64) * (random() % 8));      // often the same
        else id = int64_t(kTable.low + random() % (kTable.high - kTable.low));
    }
    return ids;
}

void fuzz(const char* what, Opened opened, const row_store_options& options, std::mt19937_64& random) {
    if (!opened.store) printf("%s: %s\n", what, opened.error.text);
    CHECK(opened.store);
    std::vector<int64_t> every;
    for (uint64_t id = kTable.low - 1; id <= kTable.high; id++) every.push_back(int64_t(id));
    expect_rows(opened.store, every, true);
    for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{48}, size_t(random() % 3000), size_t{70001}})
        expect_rows(opened.store, random_ids(random, count), count % 2);
    row_store_statistics seen;
    row_store_read_statistics(opened.store, &seen);
    CHECK(seen.resident_bytes < (6u << 20) + options.cache_bytes + options.depth * 16384);
    printf("%s, cache %" PRIu64 ": %s; %" PRIu64 " ids, %" PRIu64 " reads, %" PRIu64 " repeats, %" PRIu64
           " straddle, %" PRIu64 " cached, %" PRIu64 " KiB\n",
           what, options.cache_bytes, row_store_description(opened.store), seen.ids, seen.reads, seen.duplicates,
           seen.straddling, seen.cache_hits, seen.resident_bytes / 1024);
}

void expect_refusal(const Opened& opened, int code) {
    if (opened.error.code != code) printf("%d, not %d: %s\n", opened.error.code, code, opened.error.text);
    CHECK(!opened.store && opened.error.code == code && opened.error.text[0]);
}

// The code that a gather of one row ends with.
row_store_error gather_one(row_store* store, int64_t id) {
    Bytes weights(kWeight), scales(kScale);
    row_store_error error;
    row_store_gather64(store, &id, 1, weights.data(), scales.data(), &error);
    return error;
}

void refusals(const std::string& folder) {
    const row_store_options options{};
    const Bytes dense = dense_file(), paged = paged_file();
    const std::string path = folder + "/refused.bin";
    expect_refusal(open_packed(folder + "/absent.bin", options), ROW_STORE_OPEN);
    expect_refusal(open_packed(folder, options), ROW_STORE_OPEN);
    for (const Bytes& whole : {dense, paged}) {
        write_file(path, whole);
        row_store_table other = kTable;
        other.layer = 1;
        expect_refusal(open_packed(path, options, other), ROW_STORE_WRONG_LAYER);
        other = kTable;
        other.total++;
        expect_refusal(open_packed(path, options, other), ROW_STORE_WRONG_TABLE);
        other = kTable;
        other.low++;
        expect_refusal(open_packed(path, options, other), ROW_STORE_WRONG_ROWS);
        other = kTable;
        other.high = other.low;
        expect_refusal(open_packed(path, options, other), ROW_STORE_ARGUMENT);
        for (size_t length : {size_t{0}, size_t{7}, size_t{4095}, size_t{4096}, whole.size() - 1}) {
            write_file(path, Bytes(whole.begin(), whole.begin() + std::ptrdiff_t(length)));
            expect_refusal(open_packed(path, options), ROW_STORE_TRUNCATED);
        }
        Bytes changed = whole;
        changed.push_back(0);
        write_file(path, changed);
        expect_refusal(open_packed(path, options), ROW_STORE_TRAILING_BYTES);
        changed = whole;
        changed[3000] ^= 1;
        write_file(path, changed);
        expect_refusal(open_packed(path, options), ROW_STORE_DAMAGED_HEADER);
        changed[0] ^= 1;
        write_file(path, changed);
        expect_refusal(open_packed(path, options), ROW_STORE_NOT_PACKED);
    }
    printf("refusals: all by name\n");
}

void failing_reads(const std::string& folder, uint32_t engine) {
    row_store_options options{};
    options.engine = engine;
    const std::string path = write_file(folder + "/failing.bin", dense_file());
    const Opened opened = open_packed(path, options);
    CHECK(opened.store);
    row_store_error error = gather_one(opened.store, int64_t(kTable.total));
    CHECK(error.code == ROW_STORE_OUT_OF_TABLE && error.row == int64_t(kTable.total));
    CHECK(truncate(path.c_str(), ROW_STORE_PAGE + 2000 * kRow + 100) == 0);
    error = gather_one(opened.store, 2700);
    CHECK(error.code == ROW_STORE_SHORT_READ && error.row == 2700);
    std::vector<int64_t> ids;
    for (int64_t id = 4000; id < 4311; id++) ids.push_back(id);
    Bytes weights(ids.size() * kWeight), scales(ids.size() * kScale);
    CHECK(!row_store_gather64(opened.store, ids.data(), ids.size(), weights.data(), scales.data(), &error));
    CHECK(error.code == ROW_STORE_SHORT_READ && error.row >= 4000);
    expect_rows(opened.store, {700, 2699, -1}, false);  // the store goes on

    Bytes paged = paged_file();
    paged[ROW_STORE_PAGE * 3 + 17] ^= 0x10;
    memset(&paged[ROW_STORE_PAGE * 4], 0, ROW_STORE_PAGE);                                             // a hole
    memcpy(&paged[ROW_STORE_PAGE * 5], &paged[ROW_STORE_PAGE * 6], ROW_STORE_PAGE);                    // misplaced
    const Opened damaged = open_packed(write_file(folder + "/damaged.bin", paged), options);
    CHECK(damaged.store);
    for (const int64_t page : {2, 3, 4}) {
        error = gather_one(damaged.store, 700 + page * 15 + 14);
        CHECK(error.code == ROW_STORE_BAD_PAGE && error.row == 700 + page * 15 + 14);
    }
    expect_rows(damaged.store, {700, 729, 775}, false);
    int32_t few[] = {700, 2700};
    Bytes values(2 * kWeight, 1), exponents(2 * kScale);
    row_store_work work{opened.store, few, 2, values.data(), exponents.data(), {}};
    row_store_run(&work);
    CHECK(work.error.code == ROW_STORE_SHORT_READ && work.error.row == 2700 && values == Bytes(2 * kWeight, 0x7F));
    few[1] = 2600;
    row_store_run(&work);
    CHECK(work.error.row == 2700 && memcmp(&values[kWeight], row(2600).data(), kWeight) == 0);
    printf("failing reads, %s: each with its row\n", kEngines[engine]);
}

void system_errors(const std::string& folder) {
    row_store_options options{};
    options.engine = ROW_STORE_THREADS;
    options.depth = 8;
    const Opened opened = open_packed(write_file(folder + "/errors.bin", dense_file()), options);
    CHECK(opened.store);
    failing_offset = ROW_STORE_PAGE + 100 * kRow;
    const row_store_error error = gather_one(opened.store, 800);
    CHECK(error.code == ROW_STORE_READ && error.error == EIO && error.row == 800);
    failing_offset = -1;
    interruptions = 50;
    expect_rows(opened.store, {700, 800, 900, 4310}, false);
    is_halving = true;
    expect_rows(opened.store, {700, 800, 900, 4310}, false);
    is_halving = false;
    printf("system errors: EIO named, EINTR and short reads overcome\n");
}

// In a child, because the filter cannot be taken off again.
void without(const std::vector<long>& calls, const char* engine, const std::string& path) {
    const pid_t child = fork();
    if (child == 0) {
        std::vector<sock_filter> filter{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0)};
        for (const long call : calls) {
            filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(call), 0, 1));
            filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM));
        }
        filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
        sock_fprog program{static_cast<unsigned short>(filter.size()), filter.data()};
        CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
        {
            const Opened opened = open_packed(path, row_store_options{});
            CHECK(opened.store);
            printf("forbidden: %s\n", row_store_description(opened.store));
            CHECK(strncmp(row_store_description(opened.store), engine, strlen(engine)) == 0);
            CHECK(strstr(row_store_description(opened.store), "Operation not permitted"));
            expect_rows(opened.store, {700, 701, 700, -1, 4310}, true);
        }
        fflush(stdout);
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace

extern "C" ssize_t pread(int file, void* to, size_t length, off_t offset) {
    if (failing_offset >= offset && failing_offset < offset + off_t(length)) {
        errno = EIO;
        return -1;
    }
    if (interruptions > 0) {
        interruptions--;
        errno = EINTR;
        return -1;
    }
    return syscall(__NR_pread64, file, to, is_halving && length > 512 ? length / 1024 * 512 : length, offset);
}

int main(int count, char** arguments) {
    CHECK(count > 1 && row_store_abi() == ROW_STORE_ABI);
    setvbuf(stdout, nullptr, _IOLBF, 0);
    const std::string folder = arguments[1];
    std::mt19937_64 random(count > 2 ? strtoull(arguments[2], nullptr, 10) : 1);
    const std::string dense = write_file(folder + "/dense.bin", dense_file());
    const std::string paged = write_file(folder + "/paged.bin", paged_file());
    const std::string tensors = write_file(folder + "/tensors.bin", tensor_file());
    for (uint32_t engine = ROW_STORE_PROBE; engine <= ROW_STORE_THREADS; engine++) {
        for (const uint64_t cache : {uint64_t{0}, uint64_t{200000}}) {
            row_store_options options{};
            options.engine = engine;
            options.cache_bytes = cache;
            options.depth = cache ? 7 : 96;
            options.alignment = cache ? 4096 : 0;
            options.buffered = cache && engine == ROW_STORE_THREADS;
            fuzz("dense", open_packed(dense, options), options, random);
            fuzz("paged", open_packed(paged, options), options, random);
            fuzz("tensors", open_tensors(tensors, options), options, random);
            options.resident_scales = 1;
            fuzz("tensors with resident scales", open_tensors(tensors, options), options, random);
        }
        failing_reads(folder, engine);
    }
    refusals(folder);
    system_errors(folder);
    without({__NR_io_uring_setup}, "libaio", dense);
    without({__NR_io_uring_setup, __NR_io_setup}, "threads", dense);
    printf("all as it should be\n");
}
