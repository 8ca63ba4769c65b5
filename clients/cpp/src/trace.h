/// The fields of W3C's Trace Context.
#pragma once

#include <string_view>

namespace quire {

/// True if `tracestate` is valid and its `traceparent` is. Receivers reject others.
bool is_valid_trace(std::string_view traceparent, std::string_view tracestate);

}  // namespace quire
