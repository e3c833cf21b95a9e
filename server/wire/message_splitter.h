#ifndef ATTENTION_SERVER_WIRE_MESSAGE_SPLITTER_H_
#define ATTENTION_SERVER_WIRE_MESSAGE_SPLITTER_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <bitset>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "core/worker_pool.h"
#include "server/memory/received_slices.h"
#include "server/wire/tensor_bytes.h"

namespace attention::server {

/// The elements of a message's tensors, apart from it. What stands in the
/// message in their place is a mark.
class MessageElements {
 public:
  /// Those that `mark` stands for; null for an empty one, which stands for no
  /// bytes. Large ones may not be gathered() yet.
  TensorBytes* Find(absl::string_view mark);

  /// Gathers all that are not gathered yet (see GatherAll).
  void Gather(WorkerPool* workers);

  /// False where no message of the field's type came with it: protobuf need not
  /// be asked then. `place` is SplitRules::PlaceOf() of the rules that these
  /// were split by.
  bool MayHave(size_t place) const { return place >= kFields || came_[place]; }

 private:
  friend class MessageSplitter;
  static constexpr size_t kFields = 128;

  std::vector<TensorBytes> elements_;
  std::bitset<kFields> came_;
};

/// What is split off messages of one type. Made once for each.
class SplitRules {
 public:
  /// `elements` are the fields that hold elements, in the message or in one
  /// within it: of type bytes, which the mark then stands in, or messages with
  /// a field `bytes_contents`, which it then stands in. Where there are none,
  /// a message may be of any size: whoever brings it bounds it.
  SplitRules(const google::protobuf::Descriptor& message,
             std::vector<const google::protobuf::FieldDescriptor*> elements);
  ~SplitRules();

  /// Where a field of the message, or of one within it, stands among all their
  /// fields.
  size_t PlaceOf(const google::protobuf::FieldDescriptor& field) const;

 private:
  friend class MessageSplitter;
  struct MessagePlan;
  struct FieldPlan;

  // What becomes of each field of the message and of those within it.
  const MessagePlan* PlanOf(const google::protobuf::Descriptor& message);

  const std::vector<const google::protobuf::FieldDescriptor*> elements_;
  const size_t most_other_bytes_;
  size_t fields_ = 0;  // that have a place
  std::map<const google::protobuf::Descriptor*, std::unique_ptr<MessagePlan>>
      plans_;
  const MessagePlan* const root_;
};

/// Parses a serialized message that came in `slices`, cut anywhere, into
/// `message`, and what its fields of elements hold into the result. Elements
/// are copied once, large ones to `pinned` while that has room, or not at all
/// where one slice holds them (tensor_bytes.h); each slice that is not kept is
/// released as it is read.
///
/// Repeated fields, oneofs and merges have protobuf's own meaning.
/// INVALID_ARGUMENT where the bytes are not a message, where a field is unknown
/// (one that is dropped could have been a mask; also in a member of a oneof
/// that a later one replaces), where a string is not UTF-8, where more than 64
/// fields hold elements, or where all others beside such take more than 64 KiB.
/// RESOURCE_EXHAUSTED where memory runs out. A length that claims more bytes
/// than there are allocates nothing.
///
/// Where nothing but unknown fields is wrong, of 64 KiB at most, `message` has
/// the others nevertheless.
absl::StatusOr<MessageElements> SplitMessage(ReceivedMessage slices,
                                             const SplitRules& rules,
                                             google::protobuf::Message& message,
                                             const PinnedReserve& pinned = {});

}  // namespace attention::server

#endif  // ATTENTION_SERVER_WIRE_MESSAGE_SPLITTER_H_
