// What both sides hash: XXH3-64, streamed over everything that passes.
#pragma once

#include <cstdint>
#include <cstdio>
#include <string>
#include <string_view>

#define XXH_INLINE_ALL
#include <xxhash.h>

class Checksum {
 public:
  Checksum() { Clear(); }
  void Add(std::string_view bytes) { XXH3_64bits_update(&state_, bytes.data(), bytes.size()); }
  // As 8 bytes, least significant first; this program runs on such machines only.
  void Add(uint64_t number) { XXH3_64bits_update(&state_, &number, sizeof number); }
  void Clear() { XXH3_64bits_reset(&state_); }
  std::string Digits() const {
    char digits[17];
    std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(XXH3_64bits_digest(&state_)));
    return digits;
  }

 private:
  XXH3_state_t state_;
};

inline uint64_t Hash(std::string_view bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }
