#ifndef ATTENTION_CORE_STORE_SEQUENCE_FILE_H_
#define ATTENTION_CORE_STORE_SEQUENCE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/formats/safetensors_reader.h"
#include "core/problem.h"
#include "core/store/sequence_form.h"
#include "core/store/snapshot.h"

/// A sequence as a safetensors file: of each layer, counted from 0, the tensors
/// key.<layer> (Hkv, n, Dk) and value.<layer> (Hkv, n, Dv), and of INT8 and FP8
/// key_scale.<layer> and value_scale.<layer> (Hkv, n), FP32; and as metadata
///   format      attention-sequence
///   version     1
///   heads, key_width, value_width, layers   decimal numbers
///   datatype    FP32, FP16, BF16, INT8 or FP8
///   lengths     n of each layer, with spaces between
namespace attention::store {

/// Writes snapshots of all layers, piece by piece, from where they lie: of a
/// sequence of any size, the header alone is copied. What `write` returns;
/// INVALID_ARGUMENT where there are not as many snapshots as layers.
absl::Status WriteSequence(
    const SequenceForm& form, absl::Span<const Snapshot> layers,
    absl::FunctionRef<absl::Status(absl::Span<const std::byte>)> write);

/// The same into a file, which is created, or replaced when all is written. The
/// system's own reason where that fails; the message begins with the path that
/// it is about. Asks `go_on` before each piece, and ends with what it says
/// where that is no OK. After an error the file is as it was, unless it says
/// that it is written: then the disk may not have its name.
absl::Status WriteSequenceFile(const SequenceForm& form,
                               absl::Span<const Snapshot> layers,
                               const std::string& path,
                               absl::FunctionRef<absl::Status()> go_on);

/// A sequence's file of which the header has been read and checked.
class SequenceFileReader {
 public:
  /// INVALID_ARGUMENT, naming the metadata or the tensor that is at fault, for
  /// a file that WriteSequence() would not write.
  static absl::StatusOr<SequenceFileReader> Open(SafetensorsReader file);

  const SequenceForm& form() const { return form_; }
  /// Keys of each layer.
  const std::vector<int64_t>& lengths() const { return lengths_; }

  /// Hands over all rows, as Sequence::Append takes them, layer by layer and
  /// some MiB at a time. What the file's reading and `append` return;
  /// RESOURCE_EXHAUSTED without memory for those of one time.
  absl::Status Read(
      absl::FunctionRef<absl::Status(int64_t layer, int64_t position,
                                     const KeyValueBlock& rows)>
          append) const;

 private:
  explicit SequenceFileReader(SafetensorsReader file)
      : file_(std::move(file)) {}

  absl::Status ReadForm();
  absl::Status ReadLengths();
  absl::StatusOr<Tensor> ReadRows(const std::string& name, int64_t first,
                                  int64_t count) const;
  // A block with what it views.
  struct Rows {
    std::vector<Tensor> tensors;
    KeyValueBlock block;
  };
  absl::StatusOr<Rows> ReadBlock(int64_t layer, int64_t first,
                                 int64_t count) const;

  SafetensorsReader file_;
  SequenceForm form_;
  std::vector<int64_t> lengths_;
};

}  // namespace attention::store

#endif  // ATTENTION_CORE_STORE_SEQUENCE_FILE_H_
