#ifndef ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_STORE_H_
#define ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_STORE_H_

#include <nanobind/nanobind.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/store/store.h"

namespace attention::python {

/// core's store for Python: where the sequences of an attention_engine.Engine
/// are. Its methods are those of attention.v1.KeyValueService, with the errors
/// that a server gives. Every one throws exceptions of attention_client.errors,
/// and lets sequences go first that have been idle for too long: there is no
/// thread that would do it. The interpreter's lock is free meanwhile.
class PythonStore {
 public:
  using Milliseconds = std::optional<int64_t>;  // none: never expires
  /// heads, key_width, value_width, datatype ("FP32"), layers, name, label, and
  /// the idle limit.
  using NewSequence =
      std::tuple<int64_t, int64_t, int64_t, std::string, int64_t, std::string,
                 std::string, Milliseconds>;
  /// name, label, heads, key_width, value_width, datatype, layers, lengths,
  /// bytes, idle limit and idle time.
  using Description =
      std::tuple<std::string, std::string, int64_t, int64_t, int64_t,
                 std::string, int64_t, std::vector<int64_t>, int64_t,
                 Milliseconds, int64_t>;

  /// Bytes that all sequences may take, 1 or more; None: no limit.
  explicit PythonStore(nanobind::handle memory_limit);
  ~PythonStore();
  PythonStore(const PythonStore&) = delete;
  PythonStore& operator=(const PythonStore&) = delete;

  /// A number of this store alone.
  uint64_t incarnation() const { return incarnation_; }

  std::vector<std::string> Create(const std::vector<NewSequence>& wanted) const;
  /// The layer's length, and how many keys are new. Scales may be None.
  std::pair<int64_t, int64_t> Append(const std::string& name, int64_t layer,
                                     std::optional<int64_t> position,
                                     nanobind::handle key,
                                     nanobind::handle value,
                                     nanobind::handle key_scale,
                                     nanobind::handle value_scale) const;
  void Truncate(const std::string& name, int64_t length) const;
  /// The fork's name. Without a label or an idle limit it has the sequence's.
  std::string Fork(const std::string& name, std::optional<int64_t> length,
                   const std::string& new_name,
                   const std::optional<std::string>& label,
                   Milliseconds idle_limit) const;
  Description Describe(const std::string& name) const;
  /// All of a label, or of labels that begin so, in order of labels and names.
  std::vector<Description> List(const std::string& label, bool is_prefix) const;
  /// How many were there.
  int64_t Delete(const std::vector<std::string>& names) const;
  /// Into a file of this process, whose bytes it gives, and from one. A timeout
  /// in seconds, or None, and Ctrl-C end them; nothing is left then.
  int64_t Export(const std::string& name, const std::string& path,
                 nanobind::handle timeout) const;
  std::string Import(const std::string& path, const std::string& name,
                     const std::string& label, Milliseconds idle_limit,
                     nanobind::handle timeout) const;

  /// Lets everything go; calls are refused from then on.
  void Close();

  /// FailedPreconditionError where the store is closed, or cannot be used here.
  std::shared_ptr<store::Store> Get() const;

 private:
  const uint64_t incarnation_;
  std::shared_ptr<store::Store> store_;
};

/// Whose they are: one process has one owner.
inline constexpr char kOwner[] = "";

}  // namespace attention::python

#endif  // ATTENTION_CLIENT_PYTHON_ENGINE_NATIVE_STORE_H_
