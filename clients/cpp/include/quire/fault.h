/// What can go wrong with a call, as exceptions.
#pragma once

#include <grpcpp/support/status_code_enum.h>

#include <stdexcept>
#include <string>
#include <string_view>

namespace quire {

/// A call without an answer of the store's.
class Fault : public std::runtime_error {
 public:
  Fault(grpc::StatusCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  [[nodiscard]] grpc::StatusCode code() const noexcept { return code_; }

 private:
  grpc::StatusCode code_;
};

/// The server understood and will not; what() is its message, or the code's name if that is empty.
class Refused : public Fault {
 public:
  using Fault::Fault;
};

/// Nothing was done, or what was asked changes nothing. what() has the address and the cause.
class Unreachable : public Fault {
 public:
  Unreachable(grpc::StatusCode code, const std::string& message, bool was_sent)
      : Fault(code, message), was_sent_(was_sent) {}
  /// False if no connection was ready for the last attempt.
  [[nodiscard]] bool was_sent() const noexcept { return was_sent_; }

 private:
  bool was_sent_;
};

/// A write was sent, and the server may have done it. Purchases and reservations have the
/// outcome Unknown instead.
class OutcomeUnknown : public Fault {
 public:
  using Fault::Fault;
};

/// The name that gRPC gives a code, as `INVALID_ARGUMENT`.
std::string_view code_name(grpc::StatusCode code) noexcept;

}  // namespace quire
