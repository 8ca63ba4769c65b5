/// How many calls a second, and what CPU time they take.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

/// Runs `driver bench` with the words behind it.
nlohmann::json bench(const std::vector<std::string>& words);
