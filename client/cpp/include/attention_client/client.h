#ifndef ATTENTION_CLIENT_CLIENT_H_
#define ATTENTION_CLIENT_CLIENT_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "attention_client/sequences.h"
#include "core/tensor.h"

namespace grpc {
class ChannelCredentials;
}

/// The C++ client of the attention service. Shapes, defaults and errors of
/// every field are those of proto/attention/v1/attention.proto; the client
/// checks nothing that the server checks, so there is one place that says no.
namespace attention::client {

/// Scoring functions; parameters that are absent take the server's defaults.
struct ScaledDotProduct {
  std::optional<double> scale;  // absent: 1 / sqrt(width)
};
struct Additive {
  Tensor w_q;  // (Dq, h) or (Hq, Dq, h)
  Tensor w_k;  // (Dk, h) or (Hq, Dk, h)
  Tensor w_v;  // (h), (h, 1), (Hq, h) or (Hq, h, 1)
};
struct Gaussian {
  std::optional<double> sigma;  // absent: 1
};
struct Bilinear {
  Tensor m;                     // (Dq, Dk) or (Hq, Dq, Dk)
  std::optional<double> scale;  // absent: 1
};
/// A scoring function with parameters and options that the server has under a
/// name; what the request says wins over the set's own options.
struct ParameterSet {
  std::string name;
  std::optional<double> scale;  // scaled dot product and bilinear sets alone
  std::optional<double> sigma;  // Gaussian sets alone
};
using Scoring =
    std::variant<ScaledDotProduct, Additive, Gaussian, Bilinear, ParameterSet>;

enum class Causal : uint8_t { kNone, kTopLeft, kBottomRight };
enum class EmptyRows : uint8_t { kZero, kUniform };
/// Scores as the scoring function gives them, after the softcap, or after bias
/// and masks.
enum class Scores : uint8_t { kScaled, kCapped, kMasked };

/// One request. Only query, key and value are needed, or query and sequences.
/// Large tensors are sent from where they lie: leave them alone until the call
/// has returned.
struct AttendRequest {
  std::string id;  // returned with the result; needed on a stream
  Tensor query;    // (B, Hq, Lq, Dq), (B, Lq, Dq) or (Lq, Dq)
  Tensor key;      // (B, Hkv, Lk, Dk), ...; FP32, FP16, BF16, INT8 or FP8
  Tensor value;    // (B, Hkv, Lk, Dv), ...; of the key's type
  /// Keys and values that stay on the server. INVALID_ARGUMENT beside key,
  /// value or their scales.
  std::optional<SequenceKeys> sequences;
  Scoring scoring;
  std::optional<double> softcap;
  std::optional<Tensor> valid_lens;
  std::optional<Tensor> attend_mask;
  std::optional<Tensor> bias;
  std::optional<Tensor> alibi_slopes;  // (Hq) or (B, Hq)
  std::optional<Tensor> sinks;         // (Hq) or (B, Hq)
  std::optional<Causal> causal;
  std::optional<int64_t> query_offset;
  std::optional<Tensor> query_offsets;  // (B), instead of query_offset
  /// A packed batch: (B + 1) each, with query (T, Hq, Dq), key (S, Hkv, Dk).
  std::optional<Tensor> query_starts;
  std::optional<Tensor> key_starts;
  /// Of keys and values of INT8 or FP8, where both are needed: FP32, (B, Hkv,
  /// Lk), ..., or (S, Hkv) in a packed batch.
  std::optional<Tensor> key_scale;
  std::optional<Tensor> value_scale;
  std::optional<int64_t> key_offset;
  std::optional<int64_t> window_left;
  std::optional<int64_t> window_right;
  std::optional<bool> training;
  std::optional<double> dropout_p;
  std::optional<uint64_t> seed;
  std::optional<bool> weights_after_dropout;
  std::optional<EmptyRows> empty_rows;
  bool return_weights = false;
  bool return_lse = false;
  std::optional<int64_t> top_k;  // 1 to Lk: also return so many of each row
  bool return_key_weights = false;
  std::optional<Scores> scores;  // also return those
};

struct AttendResult {
  std::string id;
  Tensor output;
  std::optional<Tensor> weights;  // where asked for
  std::optional<Tensor> lse;      // where asked for
  /// Where top_k was given: the largest weights of each row, falling, and their
  /// keys, INT64 and FP32, (B, Hq, Lq, k). Key -1 where there are fewer.
  std::optional<Tensor> top_k_indices;
  std::optional<Tensor> top_k_weights;
  std::optional<Tensor> key_weights;  // (B, Hq, Lk), where asked for
  std::optional<Tensor> scores;       // (B, Hq, Lq, Lk), where asked for
  std::string backend;
  std::string kernel;
  std::chrono::nanoseconds queue_time{0};
  std::chrono::nanoseconds compute_time{0};
};

/// What computing should cost, in nanoseconds: the sum of these, times what a
/// request has of them.
struct BackendCostInfo {
  double of_problem = 0;       // the same for all
  double of_multiply_add = 0;  // a tanh counts as 16
  double of_byte = 0;          // of tensors and results
};
struct BackendInfo {
  std::string name;
  std::string instruction_set;
  bool experimental = false;
  std::string broken;  // what has broken since the start; empty: nothing
  /// By which `--backend auto` chooses; absent where it has no choice.
  std::optional<BackendCostInfo> cost = {};
};
struct UnusedBackendInfo {
  std::string name;
  std::string reason;
};
struct DeviceInfo {
  std::string name;
  uint64_t memory_bytes = 0;
};
/// What sequences may take at the server, and what the caller's take.
struct SequenceStoreInfo {
  uint64_t memory_limit = 0;  // bytes, of all callers
  uint64_t held_bytes = 0;    // by this caller
  int64_t sequences = 0;      // of this caller
  /// How long a sequence may be unused that says nothing of it. Absent: for
  /// ever.
  std::optional<std::chrono::milliseconds> idle_limit;
  uint64_t incarnation = 0;  // as in CreatedSequences
};
struct ServerInfo {
  std::string version;
  std::vector<BackendInfo> backends;
  std::vector<UnusedBackendInfo> unused_backends;  // passed over at the start
  std::vector<DeviceInfo> devices;  // accelerators; none on a CPU server
  int worker_threads = 0;
  uint64_t max_request_bytes = 0;
  uint64_t max_response_bytes = 0;
  uint64_t max_requests_in_flight = 0;
  uint64_t max_bytes_in_flight = 0;
  uint64_t max_stream_requests_in_flight = 0;
  std::optional<SequenceStoreInfo> sequence_store;  // absent: there is none
};

enum class Health : uint8_t { kUnknown, kServing, kNotServing };

/// Encryption, in files of PEM that are read once.
struct TlsOptions {
  /// Who signs the server's certificate; empty: those that the machine trusts.
  std::string ca_file = {};
  /// This caller's certificate and its key, where the server asks for one.
  std::string certificate_file = {};
  std::string key_file = {};
  /// The name in the server's certificate; empty: the host in the target.
  std::string server_name = {};
};

/// Where calls go when a target is several addresses, as a name in DNS may be:
/// to the first that can be reached, or to each in turn (gRPC's pick_first and
/// round_robin).
enum class LoadBalancing : uint8_t { kPickFirst, kRoundRobin };

struct ClientOptions {
  /// gRPC target: "127.0.0.1:8001", "dns:///attention:8001",
  /// "unix:/run/a.sock". Without a scheme it has a port, 1 to 65535.
  std::string target = "127.0.0.1:8001";
  /// kRoundRobin is for servers that are alike behind one name, as those of a
  /// headless Service; not for calls on a sequence, which one of them has.
  LoadBalancing load_balancing = LoadBalancing::kPickFirst;
  /// Any channel credentials; none means TLS as below, or plain text.
  std::shared_ptr<grpc::ChannelCredentials> credentials = nullptr;
  /// TLS; not beside `credentials`.
  std::optional<TlsOptions> tls = std::nullopt;
  /// Tells the server who calls: sent with every call, as a bearer token. In
  /// plain text to this machine alone.
  std::string token = {};
  /// Per call, all its attempts together (AttendMany: per stream); 0 means
  /// none, one year is the most.
  std::chrono::milliseconds deadline{60'000};
  /// Attempts per unary call, the first included, where the server answers
  /// UNAVAILABLE, refuses the connection or loses it: 1 to 5 (gRPC's own
  /// bound), with exponential backoff and jitter between them. Nothing else is
  /// tried again: no other status, no stream, and no host name that does not
  /// resolve. Nor is what would be done twice: making, forking and importing
  /// sequences, and appending without a position for each (which takes a
  /// connection of its own).
  int max_attempts = 4;
  std::chrono::milliseconds initial_backoff{100};
  std::chrono::milliseconds max_backoff{2'000};
  /// Messages in both directions; 2^31 - 1 is gRPC's own bound.
  int max_message_bytes = 2'147'483'647;
};

/// How long to wait before calling again, where the server said so: with
/// RESOURCE_EXHAUSTED, if others may give back what they use. 1 ms to a year.
/// None where the same call would fail again, or the server did not say.
std::optional<std::chrono::milliseconds> RetryAfter(const absl::Status& status);

/// A connection. Cheap to move; may be used from several threads at once. Where
/// calls wait and nothing comes for 30 s, the server is asked for a sign of
/// life; without one within 10 s, the connection is lost and another is made.
/// gRPC asks twice after what was last sent: a connection that is dropped later
/// than that, in a call of more than a minute, is not noticed.
///
/// Every error keeps the server's status code, message and details (google.rpc,
/// as payloads).
class Client {
 public:
  /// Does not wait for the connection: the first call does. INVALID_ARGUMENT
  /// for options out of range and files that are of no use.
  static absl::StatusOr<Client> Create(const ClientOptions& options);

  /// One unary call.
  absl::StatusOr<AttendResult> Attend(const AttendRequest& request) const;

  /// Many requests over one stream, answered as they finish. on_reply is called
  /// once per request, from the calling thread, with the request's index;
  /// requests without an id are given their index as one. INVALID_ARGUMENT,
  /// with nothing sent, where two requests have one id. Any other error says
  /// that the stream itself broke: replies that came before it have been
  /// delivered, and the requests without one may or may not have been computed.
  /// One request over the server's message limit breaks the stream.
  /// They are computed in any order and beside each other, but for requests
  /// about one layer of a sequence, which keep their order where one of them
  /// appends.
  absl::Status AttendMany(
      const std::vector<AttendRequest>& requests,
      const std::function<void(size_t, absl::StatusOr<AttendResult>)>& on_reply)
      const;

  /// Makes sequences, at most 256, all or none. INVALID_ARGUMENT names what is
  /// wrong, ALREADY_EXISTS a name that is taken; RESOURCE_EXHAUSTED says how
  /// much memory sequences hold.
  absl::StatusOr<CreatedSequences> CreateSequences(
      const std::vector<NewSequence>& sequences) const;

  /// Puts keys (Hkv, n, Dk) and values (Hkv, n, Dv), or (1, Hkv, n, ...), of
  /// the sequence's datatype into one layer, all of them or none. They are sent
  /// from where they lie. NOT_FOUND; ABORTED and OUT_OF_RANGE, of
  /// to.position; INVALID_ARGUMENT for a shape, datatype or layer that the
  /// sequence does not have, and for scales that are missing or not wanted;
  /// RESOURCE_EXHAUSTED where memory is out.
  absl::StatusOr<AppendedKeys> AppendToSequence(
      const SequenceLayer& to, const KeysAndValues& rows) const;
  absl::StatusOr<AppendedKeys> AppendToSequence(const SequenceLayer& to,
                                                const Tensor& key,
                                                const Tensor& value) const;

  /// Keeps the first `length` keys of every layer; requests that are computing
  /// go on with what they had. NOT_FOUND; OUT_OF_RANGE where a layer has fewer.
  absl::Status TruncateSequence(const std::string& name, int64_t length) const;

  /// Makes a sequence that has the keys of another, and gives its name. They
  /// share memory, and each goes its own way. NOT_FOUND; ALREADY_EXISTS;
  /// OUT_OF_RANGE where a layer has fewer than fork.length.
  absl::StatusOr<std::string> ForkSequence(const std::string& name,
                                           const NewFork& fork = {}) const;

  /// Neither this nor a list is a use of a sequence, for its idle limit.
  /// NOT_FOUND.
  absl::StatusOr<SequenceDescription> DescribeSequence(
      const std::string& name) const;

  /// A page of the caller's sequences. INVALID_ARGUMENT for a page_size out of
  /// range, or a page_token that no page has given.
  absl::StatusOr<SequencePage> ListSequences(
      const SequenceQuery& query = {}) const;

  /// That page and all behind it, one call each. What is made or ends
  /// meanwhile may be among them or not; the others are, once.
  absl::StatusOr<std::vector<SequenceDescription>> ListAllSequences(
      SequenceQuery query = {.page_size = 1000}) const;

  /// Ends sequences, at most 256, and says how many. Names that are not there
  /// are no error. Where an answer was lost and the call was made once more,
  /// those that the first one ended are not counted.
  absl::StatusOr<int64_t> DeleteSequences(
      const std::vector<std::string>& names) const;

  /// Writes a sequence into a file of the server's folder, as in
  /// SequenceImport, which replaces an older one; gives its bytes. The format
  /// is safetensors, with key.<layer> (Hkv, n, Dk) and value.<layer>, and of
  /// INT8 and FP8 key_scale.<layer> (Hkv, n) and value_scale.<layer>.
  /// NOT_FOUND; INVALID_ARGUMENT for a file's name; FAILED_PRECONDITION where
  /// the server has no folder, or it is gone or cannot be written.
  absl::StatusOr<uint64_t> ExportSequence(const std::string& name,
                                          const std::string& file) const;

  /// Makes a sequence from such a file. The same errors, and ALREADY_EXISTS,
  /// RESOURCE_EXHAUSTED, as CreateSequences() and AppendToSequence(); ABORTED
  /// where the sequence is deleted meanwhile.
  absl::StatusOr<ImportedSequence> ImportSequence(
      const SequenceImport& import) const;

  absl::StatusOr<ServerInfo> GetServerInfo() const;

  /// What grpc.health.v1 says of `service`; "" is the whole server.
  absl::StatusOr<Health> CheckHealth(const std::string& service = "") const;

  Client(Client&&) noexcept;
  Client& operator=(Client&&) noexcept;
  ~Client();

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_CLIENT_H_
