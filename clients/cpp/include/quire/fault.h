/// What can go wrong with a call, as exceptions.
#pragma once

#include <grpcpp/support/status_code_enum.h>

#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>

namespace quire {

/// A call without an answer of the store's.
class Fault : public std::runtime_error {
 public:
  Fault(grpc::StatusCode code, const std::string& message, std::string cause = {})
      : std::runtime_error(message), code_(code), cause_(std::move(cause)) {}
  [[nodiscard]] grpc::StatusCode code() const noexcept { return code_; }
  /// The message of gRPC's status: the server's, or that of the name's resolution, the socket or TLS.
  [[nodiscard]] const std::string& cause() const noexcept { return cause_; }

 private:
  grpc::StatusCode code_;
  std::string cause_;
};

/// The server understood and will not; what() is its message, or the code's name if that is empty.
class Refused : public Fault {
 public:
  using Fault::Fault;
};

/// Nothing was done, or what was asked changes nothing. what() has the address and the cause.
class Unreachable : public Fault {
 public:
  Unreachable(grpc::StatusCode code, const std::string& message, std::string cause, bool sent)
      : Fault(code, message, std::move(cause)), sent_(sent) {}
  /// False if no connection was ready for the last attempt.
  [[nodiscard]] bool sent() const noexcept { return sent_; }

 private:
  bool sent_;
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
