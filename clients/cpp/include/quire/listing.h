/// Answers that come in parts.
#pragma once

#include <cstddef>
#include <functional>
#include <iterator>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace quire {

/// Items that are fetched while they are read: `for (const Book& book : client.search("gardening"))`. One thread at a
/// time may read a listing, and once. It has one page in memory.
template <class T>
class Listing {
 public:
  /// Gives the next page, or nothing after the last; may set the server's message.
  using Fetch = std::function<std::optional<std::vector<T>>(std::string& message)>;

  explicit Listing(Fetch fetch) : fetch_(std::move(fetch)) {}

  /// The next item, or nothing after the last. Throws the faults of a call.
  std::optional<T> next() {
    while (at_ == page_.size()) {
      auto page = next_page();
      if (!page) {
        return std::nullopt;
      }
      page_ = std::move(*page);
      at_ = 0;
    }
    return std::move(page_[at_++]);
  }

  /// The next page whole, or nothing after the last; it may be empty.
  std::optional<std::vector<T>> next_page() {
    auto page = fetch_ ? fetch_(message_) : std::nullopt;
    if (!page) {
      fetch_ = nullptr;
    }
    return page;
  }

  /// The server's message beside the items, as the reason why a search has found none.
  [[nodiscard]] const std::string& message() const noexcept { return message_; }

  class Iterator {
   public:
    using iterator_concept = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = T;

    explicit Iterator(Listing& listing) : listing_(&listing), item_(listing.next()) {}
    T& operator*() const { return *item_; }
    Iterator& operator++() {
      item_ = listing_->next();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t /*end*/) const { return !item_; }

   private:
    Listing* listing_;
    mutable std::optional<T> item_;
  };

  Iterator begin() { return Iterator(*this); }
  [[nodiscard]] std::default_sentinel_t end() const { return {}; }

 private:
  Fetch fetch_;
  std::vector<T> page_;
  std::size_t at_ = 0;
  std::string message_;
};

}  // namespace quire
