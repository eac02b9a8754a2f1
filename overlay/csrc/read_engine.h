// Ways to have many reads of one file in flight at a time.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace row_store_detail {

struct Span {
    uint64_t offset;
    uint32_t length;
};

// What is to be read. `finish` gets the bytes and the result of the read: their number, or a negative errno.
// With the thread engine, `finish` runs in several threads at once, for different reads.
class Reads {
  public:
    virtual size_t count() const = 0;
    virtual Span span(size_t index) const = 0;
    virtual void finish(size_t index, const uint8_t* data, int64_t result) = 0;
    virtual bool is_stopped() const = 0;  // one of them failed: begin no more

  protected:
    ~Reads() = default;
};

struct EngineSetup {
    int file;
    uint32_t depth;   // most reads in flight
    uint32_t slot;    // most bytes of one read
    uint32_t alignment;
};

class ReadEngine {
  public:
    virtual ~ReadEngine() = default;
    virtual const char* name() const = 0;
    // 0 once every read is finished, or the errno for which no more reads can be submitted to this engine, ever.
    virtual int run(Reads& reads) = 0;
    virtual size_t resident_bytes() const = 0;
};

// NULL, and errno and what was refused, when the engine does not work here.
std::unique_ptr<ReadEngine> make_uring_engine(const EngineSetup& setup, std::string* why);
std::unique_ptr<ReadEngine> make_aio_engine(const EngineSetup& setup, std::string* why);
std::unique_ptr<ReadEngine> make_thread_engine(const EngineSetup& setup, std::string* why);

// Anonymous memory for `depth` slots, aligned to pages; unmapped with the object.
class Slots {
  public:
    explicit Slots(const EngineSetup& setup);
    ~Slots();
    Slots(const Slots&) = delete;
    Slots& operator=(const Slots&) = delete;

    explicit operator bool() const { return memory_ != nullptr; }
    uint8_t* operator[](size_t slot) const { return memory_ + slot * stride_; }
    uint8_t* memory() const { return memory_; }
    size_t size() const { return size_; }

  private:
    size_t stride_;
    size_t size_;
    uint8_t* memory_;
};

// pread until `length` bytes are there, the file ends, or an error other than EINTR; what came, or a negative errno.
int64_t read_whole(int file, uint8_t* to, uint32_t length, uint64_t offset);

}  // namespace row_store_detail
