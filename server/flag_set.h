#ifndef ATTENTION_SERVER_FLAG_SET_H_
#define ATTENTION_SERVER_FLAG_SET_H_

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <deque>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "server/flag_values.h"

namespace attention::server {

/// "ATTENTION_GRPC_PORT" for "--grpc-port".
std::string EnvironmentName(const std::string& flag);

/// Flags of the command line, bound to the values that they fill, which must
/// outlive it. Each has its group in --help, and its environment variable.
class FlagSet {
 public:
  FlagSet(const char* description, const char* program)
      : app_(description, program) {}

  CLI::App& app() { return app_; }
  /// "--grpc-port" and so on.
  const std::vector<std::string>& names() const { return names_; }

  /// Of one that CLI11 made. Help shows the environment's name, but CLI11 does
  /// not read it by itself: it would let the config file win over it.
  void Describe(CLI::Option* option, const std::string& flag,
                const std::string& type, const std::string& default_text,
                const std::string& help, const std::string& group) {
    option->type_name(type)
        ->description(absl::StrCat(help, " [", EnvironmentName(flag), "]"))
        ->group(group)
        ->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
    if (!default_text.empty()) option->default_str(default_text);
    names_.push_back(flag);
  }

  /// One that takes a `type`, "FILE" for instance.
  template <typename T>
  CLI::Option* Add(const std::string& flag, T& value, const std::string& type,
                   const std::string& default_text, const std::string& help,
                   const std::string& group) {
    CLI::Option* option = app_.add_option(flag, value);
    Describe(option, flag, type, default_text, help, group);
    return option;
  }

  /// One that is given several times, or once with commas in between.
  void AddList(const std::string& flag, std::vector<std::string>& values,
               const std::string& type, const std::string& help,
               const std::string& group) {
    CLI::Option* option = app_.add_option(flag, values);
    Describe(option, flag, type, "", help, group);
    option->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
        ->expected(1)
        ->allow_extra_args(false)
        ->delimiter(',');
  }

  /// One that takes a whole number; its default is what `value` is.
  template <typename Integer>
  void AddInteger(const std::string& flag, Integer& value,
                  const std::string& help, const std::string& group) {
    Add(flag, value, "INT", absl::StrCat(value), help, group)
        ->check(WholeNumber<Integer>());
  }

  /// Bytes, of the group Limits.
  void AddSize(const std::string& flag, int64_t& value,
               const std::string& default_text, const std::string& help) {
    Add(flag, value, "SIZE", default_text, help, "Limits")
        ->transform(SizeInBytes())
        ->check(WholeNumber<int64_t>());
  }

  /// The flag alone, or --flag=true and --flag=false.
  void AddSwitch(const std::string& flag, bool& value, const std::string& help,
                 const std::string& group = "Trust") {
    CLI::Option* option = app_.add_flag(flag, value);
    Describe(option, flag, "", value ? "true" : "false", help, group);
    option->check(TrueOrFalse());
  }

  /// A time in seconds, or with its unit.
  void AddTime(const std::string& flag, std::chrono::milliseconds& value,
               const std::string& default_text, const std::string& help,
               const std::string& group) {
    const double seconds = static_cast<double>(value.count()) / 1000;
    times_.push_back({flag, seconds, &value});
    Add(flag, times_.back().seconds, "TIME", default_text, help, group)
        ->transform(TimeInSeconds());
  }

  /// Fills the values of AddTime(), of which the flags are seconds first.
  /// INVALID_ARGUMENT where one does not fit.
  absl::Status ConvertTimes() const;

 private:
  struct Time {
    std::string flag;
    double seconds;
    std::chrono::milliseconds* value;
  };

  std::deque<Time> times_;  // whose elements stay where they are
  CLI::App app_;
  std::vector<std::string> names_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_FLAG_SET_H_
