/// Flags of the command line and the driver for reaching a server.
#pragma once

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iterator>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "quire/client.h"

namespace quire {

class Connect {
 public:
  void add_to(CLI::App& app) {
    const auto time = [this](double seconds) { timeout = std::chrono::milliseconds(std::llround(seconds * 1e3)); };
    app.add_option_function<double>("--timeout", time, "longest time for a call, as 500ms, 5s or 2min")
        ->transform(CLI::AsNumberWithUnit(std::map<std::string, double>{{"ms", 0.001}, {"s", 1}, {"min", 60}}))
        ->check(CLI::Range(0.001, 86'400.0));
    app.add_option("--retries", options_.retries, "how often to send again")->check(CLI::Range(0, 1'000'000));
    app.add_option("--token", options_.token, "for a server that asks for one")->envname("QUIRE_TOKEN");
    app.add_option("--ca", ca_, "certificates in PEM to trust, not the system's")->envname("SSL_CERT_FILE");
    auto* certificate = app.add_option("--certificate", certificate_, "certificate in PEM to show to the server");
    certificate->needs(app.add_option("--key-file", key_file_, "private key of --certificate")->needs(certificate));
  }

  std::optional<std::chrono::milliseconds> timeout;

  /// For servers at addresses with commas between.
  Options options(const std::string& addresses) {
    options_.addresses = Address::parse_list(addresses);
    if (std::ranges::any_of(options_.addresses, &Address::tls)) {
      options_.tls = {.roots = pem(ca_, "BEGIN CERTIFICATE"),
                      .certificate = pem(certificate_, "BEGIN CERTIFICATE"),
                      .key = pem(key_file_, "PRIVATE KEY-----")};
    }
    return options_;
  }

  /// The files, each behind its flag.
  std::vector<std::string> files() const {
    std::vector<std::string> files;
    for (const auto& [flag, file] :
         {std::pair("--ca", ca_), {"--certificate", certificate_}, {"--key-file", key_file_}}) {
      if (!file.empty()) {
        files.insert(files.end(), {flag, file});
      }
    }
    return files;
  }

 private:
  /// A file of PEM with what is looked for; nothing without a file.
  static std::string pem(const std::string& file, const char* what) {
    std::ifstream input(file, std::ios::binary);
    std::string text(std::istreambuf_iterator<char>(input), {});
    if (!file.empty() && text.find(what) == std::string::npos) {
      throw std::invalid_argument("cannot read " + file);
    }
    return text;
  }

  Options options_;
  std::string ca_, certificate_, key_file_;
};

}  // namespace quire
