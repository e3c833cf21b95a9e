#ifndef ATTENTION_SERVER_OPTIONS_OPTION_KINDS_H_
#define ATTENTION_SERVER_OPTIONS_OPTION_KINDS_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "server/options/options.h"

/// What an option of the server is, where its value lies, and what it may be.
/// Each kind has
/// - kExpected: what a text of it looks like,
/// - Parse(): sets the value by a text; false where it is none of this kind,
/// - Text(): a value as --help shows it,
/// - Wrong(): what is wrong with a value, "70000 (expected 0 to 65535)"; empty
///   where nothing is.
namespace attention::server {

struct TextOption {
  static constexpr char kExpected[] = "a text";
  static bool Parse(const std::string& text, std::string& value) {
    value = text;
    return true;
  }
  static std::string Text(const std::string& value) { return value; }
  std::string Wrong(const std::string& value) const;

  std::string ServerOptions::*member;
  const char* type;                // in --help: "FILE"
  const char* expected = nullptr;  // where it may not be empty
  size_t most_bytes = std::string::npos;
};

struct ChoiceOption {
  static constexpr char kExpected[] = "a word";
  static bool Parse(const std::string& text, std::string& value) {
    value = text;
    return true;
  }
  static std::string Text(const std::string& value) { return value; }
  std::string Wrong(const std::string& value) const;

  std::string ServerOptions::*member;
  const char* type;
  std::vector<std::string> known;
};

/// Several, with commas in between, or the option given again.
struct ListOption {
  static constexpr char kExpected[] = "a list";
  static bool Parse(const std::string& text, std::vector<std::string>& values);
  static std::string Text(const std::vector<std::string>& values);
  std::string Wrong(const std::vector<std::string>& values) const;

  std::vector<std::string> ServerOptions::*member;
  const char* type;
  bool (*is_right)(const std::string& value);
  const char* expected;  // of one
};

/// A whole number.
template <typename Integer>
struct NumberOption {
  static constexpr char kExpected[] = "a whole number";
  static bool Parse(const std::string& text, Integer& value);
  static std::string Text(Integer value) { return std::to_string(value); }
  std::string Wrong(Integer value) const;

  Integer ServerOptions::*member;
  int64_t least;
  int64_t most;
  const char* type = "INT";
};

/// Bytes; every unit is a power of 1024.
struct SizeOption {
  static constexpr char kExpected[] = "a size such as 65536, 64MiB or 2GiB";
  static bool Parse(const std::string& text, int64_t& value);
  static std::string Text(int64_t value);
  std::string Wrong(int64_t value) const;

  int64_t ServerOptions::*member;
  int64_t least;
  int64_t most = std::numeric_limits<int64_t>::max();
  bool or_zero = false;  // although that is less
  const char* type = "SIZE";
};

/// Seconds, or a time with its unit.
struct TimeOption {
  static constexpr char kExpected[] = "a time such as 500ms, 30s or 2min";
  static bool Parse(const std::string& text, std::chrono::milliseconds& value);
  static std::string Text(std::chrono::milliseconds value);
  std::string Wrong(std::chrono::milliseconds value) const;

  std::chrono::milliseconds ServerOptions::*member;
  std::chrono::milliseconds least{0};
  const char* type = "TIME";
};

/// A flag alone, or --flag=true and --flag=false.
struct SwitchOption {
  static constexpr char kExpected[] = "true or false";
  static bool Parse(const std::string& text, bool& value);
  static std::string Text(bool value) { return value ? "true" : "false"; }
  static std::string Wrong(bool) { return ""; }

  bool ServerOptions::*member;
  const char* type = "";
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_OPTIONS_OPTION_KINDS_H_
