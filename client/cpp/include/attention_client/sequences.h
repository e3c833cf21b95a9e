#ifndef ATTENTION_CLIENT_SEQUENCES_H_
#define ATTENTION_CLIENT_SEQUENCES_H_

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/tensor.h"

/// Keys and values that stay on the server between requests, as sequences with
/// names: what client.h's calls take and give. Heads are those of keys and
/// values (Hkv), widths those of a key (Dk) and of a value (Dv); a length is a
/// number of keys.
///
/// A sequence is its owner's: the caller, where the server has a list of
/// callers, else everybody. It ends when it is deleted, when it was idle for
/// its limit, where the server evicts, and with the server; then it is
/// NOT_FOUND, and the message says which, as far as that is remembered.
///
/// Behind a proxy with several servers a call finds its sequence by what the
/// name has before the first '/': give sequences names, and name forks
/// NAME/WHAT. A call on several sequences goes to the first one's server. On a
/// stream, requests go where the stream goes.
namespace attention::client {

/// What all keys and values of a sequence have in common, from its making on.
struct SequenceForm {
  int64_t heads = 1;        // 1 to 65536
  int64_t key_width = 1;    // 1 to 1048576
  int64_t value_width = 1;  // 0 to 1048576
  /// FP32, FP16 or BF16; or INT8 or FP8, each of whose rows comes with a scale.
  DataType datatype = DataType::kFloat32;
  /// Those of a model under one name, each with keys and a length of its own;
  /// 1 to 4096.
  int64_t layers = 1;
};

struct NewSequence {
  SequenceForm form = {};
  /// 1 to 256 letters, digits and . _ - : + = @ /. Empty: the server makes one,
  /// of 128 random bits, that nobody guesses.
  std::string name = {};
  std::string label = {};  // for lists; UTF-8 text of up to 256 bytes
  /// How long it may be unused: 1 ms to 100 years. Absent: the server's default
  /// (--resident-idle-limit).
  std::optional<std::chrono::milliseconds> idle_limit = {};
};

struct CreatedSequences {
  std::vector<std::string> names;  // in the order of the request
  /// A number of this run of the server: where another call gives another one,
  /// every sequence of before is gone.
  uint64_t incarnation = 0;
};

/// One layer of a sequence, and a place in it.
struct SequenceLayer {
  std::string name = {};
  std::optional<int64_t> layer = {};  // 0 to layers - 1; absent: 0
  /// Where the first key goes that is appended: 0 to the layer's length;
  /// absent: behind the last one. At positions that are taken the same bits
  /// must be, and the rest is appended, so that an append whose answer was lost
  /// can be repeated. ABORTED, with the length, where others are there;
  /// OUT_OF_RANGE where it would leave a gap.
  std::optional<int64_t> position = {};
};

/// What is appended to a sequence, of its datatype.
struct KeysAndValues {
  Tensor key;
  Tensor value;
  /// Of INT8 and FP8, where both are needed: what each row's elements are
  /// multiplied by. FP32, of the key's shape without its last extent; finite, 0
  /// or more.
  std::optional<Tensor> key_scale = {};
  std::optional<Tensor> value_scale = {};
};

/// Where an AttendRequest finds its keys and values, in place of its own.
struct SequenceKeys {
  /// One for each batch entry, or for each entry of a packed batch (then there
  /// are query_starts and no key_starts). Lengths may differ: each entry means
  /// what it means by itself. `position` is of what is appended; without
  /// `append` it is INVALID_ARGUMENT.
  std::vector<SequenceLayer> entries = {};
  /// Keys and values that are appended first, (B, Hkv, n, Dk) and (B, Hkv, n,
  /// Dv) in the query's rank, or (N, Hkv, Dk) and (N, Hkv, Dv), as many for
  /// each entry of a packed batch as it has queries: a step of decoding is one
  /// call. An entry's errors are those of AppendToSequence(); entries before
  /// it are appended then. With positions, the request may be repeated. No two
  /// entries may be of one layer of a sequence then.
  std::optional<KeysAndValues> append = {};
};

struct AppendedKeys {
  int64_t length = 0;    // of the layer, now
  int64_t new_keys = 0;  // those that were not there before
};

struct NewFork {
  /// The first keys of every layer that the fork has. Absent: all that each
  /// has.
  std::optional<int64_t> length = {};
  std::string name = {};  // as in NewSequence
  /// Absent: as in the sequence that is forked.
  std::optional<std::string> label = {};
  std::optional<std::chrono::milliseconds> idle_limit = {};
};

struct SequenceDescription {
  std::string name;
  std::string label;
  SequenceForm form;
  std::vector<int64_t> lengths;  // of each layer
  /// What its keys and values take, with what it shares with forks.
  uint64_t bytes = 0;
  std::optional<std::chrono::milliseconds> idle_limit;  // absent: none
  std::chrono::milliseconds idle{0};                    // since its last use
  uint64_t incarnation = 0;  // as in CreatedSequences
};

/// Which sequences are listed.
struct SequenceQuery {
  std::string label_prefix = {};          // those whose label begins with it
  std::optional<std::string> label = {};  // or those whose label is just this
  std::optional<int64_t> page_size = {};  // 1 to 1000; absent: 100
  std::string page_token = {};            // where to go on; empty: first page
};

struct SequencePage {
  std::vector<SequenceDescription> sequences;  // in order of label and name
  std::string next_page_token;                 // empty: that was the last
};

struct SequenceImport {
  /// A file's name in the server's folder (--resident-folder), without a path:
  /// 1 to 255 letters, digits and . _ - : + = @, not beginning with a dot.
  std::string file = {};
  std::string name = {};  // these as in NewSequence
  std::string label = {};
  std::optional<std::chrono::milliseconds> idle_limit = {};
};

struct ImportedSequence {
  std::string name;
  std::vector<int64_t> lengths;  // of each layer
  uint64_t incarnation = 0;      // as in CreatedSequences
};

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_SEQUENCES_H_
