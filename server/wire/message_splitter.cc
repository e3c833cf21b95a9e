#include "server/wire/message_splitter.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstring>
#include <limits>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/container/inlined_vector.h"
#include "absl/strings/str_cat.h"
#include "server/base/utf8.h"
#include "server/wire/skeleton.h"
#include "server/wire/slice_stream.h"

namespace attention::server {
namespace {

namespace pb = google::protobuf;
using pb::internal::WireFormatLite;

// What a skeleton may take: an id of 256 bytes and a dozen shapes take far
// less, and protobuf's parser turns a byte of it into up to eight in memory.
constexpr size_t kMostOtherBytes = 64 << 10;
// An entry costs memory, even one of a byte.
constexpr size_t kMostElements = 64;
constexpr size_t kUsualElements = 4;
// protobuf's own bounds.
constexpr int kMostTagBytes = 5;
constexpr int kMostLengthBytes = 5;
constexpr char kMarkField[] = "bytes_contents";

// A mark is an index.
using Mark = uint16_t;

}  // namespace

TensorBytes* MessageElements::Find(absl::string_view mark) {
  Mark index = 0;
  if (mark.size() != sizeof index) return nullptr;
  std::memcpy(&index, mark.data(), sizeof index);
  return &elements_[index];
}

void MessageElements::Gather(WorkerPool* workers) {
  absl::InlinedVector<TensorBytes*, 8> tensors;
  for (TensorBytes& tensor : elements_) {
    if (!tensor.gathered()) tensors.push_back(&tensor);
  }
  if (!tensors.empty()) GatherAll(tensors, workers);
}

// What becomes of a field: looked up once, not for every message.
struct SplitRules::FieldPlan {
  const pb::FieldDescriptor* field = nullptr;
  size_t place = 0;  // among the fields of all messages
  WireFormatLite::WireType wire_type = WireFormatLite::WIRETYPE_VARINT;
  bool packable = false;
  bool utf8 = false;
  bool elements = false;
  int mark_number = 0;  // of elements in a message: the field of the mark
  const MessagePlan* message = nullptr;

  bool Takes(WireFormatLite::WireType type) const {
    return type == wire_type ||
           (packable && type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED);
  }
};

struct SplitRules::MessagePlan {
  const pb::Descriptor* message;
  std::vector<FieldPlan> fields;  // by number

  const FieldPlan* Find(int number) const {
    const auto index = static_cast<size_t>(number);
    return index < fields.size() && fields[index].field != nullptr
               ? &fields[index]
               : nullptr;
  }
};

SplitRules::SplitRules(const pb::Descriptor& message,
                       std::vector<const pb::FieldDescriptor*> elements)
    : elements_(std::move(elements)),
      most_other_bytes_(elements_.empty() ? std::numeric_limits<size_t>::max()
                                          : kMostOtherBytes),
      root_(PlanOf(message)) {}

SplitRules::~SplitRules() = default;

size_t SplitRules::PlaceOf(const pb::FieldDescriptor& field) const {
  return plans_.at(field.containing_type())->Find(field.number())->place;
}

const SplitRules::MessagePlan* SplitRules::PlanOf(
    const pb::Descriptor& message) {
  std::unique_ptr<MessagePlan>& made = plans_[&message];
  if (made != nullptr) return made.get();
  made = std::make_unique<MessagePlan>();
  MessagePlan& plan = *made;
  plan.message = &message;
  for (int n = 0; n < message.field_count(); ++n) {
    const pb::FieldDescriptor& field = *message.field(n);
    const auto number = static_cast<size_t>(field.number());
    if (plan.fields.size() <= number) plan.fields.resize(number + 1);
    FieldPlan entry;
    entry.field = &field;
    entry.place = fields_++;
    entry.wire_type = WireFormatLite::WireTypeForFieldType(
        static_cast<WireFormatLite::FieldType>(field.type()));
    entry.packable = field.is_packable();
    entry.utf8 = field.type() == pb::FieldDescriptor::TYPE_STRING;
    entry.elements = absl::c_linear_search(elements_, &field);
    if (const pb::Descriptor* inner = field.message_type()) {
      if (entry.elements) {
        entry.mark_number = inner->FindFieldByName(kMarkField)->number();
      } else {
        entry.message = PlanOf(*inner);
      }
    }
    plan.fields[number] = entry;
  }
  return &plan;
}

// Copies a message field by field into its skeleton: the same fields in the
// same order, with a mark in place of elements. Parsing the skeleton with the
// generated class then gives every repetition, merge and oneof protobuf's own
// meaning: whatever takes a tensor away takes its mark away.
class MessageSplitter {
  using MessagePlan = SplitRules::MessagePlan;
  using FieldPlan = SplitRules::FieldPlan;

 public:
  MessageSplitter(ReceivedMessage slices, const SplitRules& rules,
                  const PinnedReserve& pinned)
      : rules_(rules),
        pinned_(pinned),
        stream_(std::move(slices)),
        in_(&stream_) {}

  absl::StatusOr<MessageElements> Split(pb::Message& message) {
    if (stream_.TotalBytes() > std::numeric_limits<int>::max()) {
      return NotAMessage("more than 2^31 - 1 bytes");
    }
    end_ = static_cast<int>(stream_.TotalBytes());
    in_.PushLimit(end_);
    result_.elements_.reserve(kUsualElements);
    Skeleton skeleton;
    absl::Status status = CopyMessage(*rules_.root_, "", skeleton);
    if (!status.ok()) return unknown_.ok() ? status : unknown_;
    if (!message.ParseFromArray(skeleton.bytes().data(),
                                static_cast<int>(skeleton.size()))) {
      return NotAMessage("a field is malformed");
    }
    if (!unknown_.ok()) return unknown_;
    return std::move(result_);
  }

 private:
  // Copies fields up to the message's end. `within` is the name of the field
  // that holds this message.
  absl::Status CopyMessage(const MessagePlan& message, absl::string_view within,
                           Skeleton& out) {
    while (Left() > 0) {
      uint64_t tag = 0;
      if (!ReadVarint(kMostTagBytes, tag)) return NotAMessage("a tag is cut");
      absl::Status status =
          CopyField(message, static_cast<uint32_t>(tag), within, out);
      if (!status.ok()) return status;
      if (out.size() > rules_.most_other_bytes_) {
        return absl::InvalidArgumentError(absl::StrCat(
            within, within.empty() ? "" : ": ",
            "the fields other than tensor elements take more than ",
            rules_.most_other_bytes_, " bytes"));
      }
    }
    return absl::OkStatus();
  }

  absl::Status CopyField(const MessagePlan& message, uint32_t tag,
                         absl::string_view within, Skeleton& out) {
    const auto wire_type = WireFormatLite::GetTagWireType(tag);
    const int number = WireFormatLite::GetTagFieldNumber(tag);
    const FieldPlan* const plan = message.Find(number);
    if (plan == nullptr || !plan->Takes(wire_type)) {
      return PassOver(message, plan, tag);
    }
    if (plan->place < MessageElements::kFields) result_.came_.set(plan->place);
    out.AppendVarint(tag);
    switch (wire_type) {
      case WireFormatLite::WIRETYPE_VARINT:
        return CopyVarint(*plan->field, out);
      case WireFormatLite::WIRETYPE_FIXED64:
        return CopyRaw(*plan->field, sizeof(uint64_t), out);
      case WireFormatLite::WIRETYPE_FIXED32:
        return CopyRaw(*plan->field, sizeof(uint32_t), out);
      case WireFormatLite::WIRETYPE_LENGTH_DELIMITED:
        return CopyDelimited(*plan, within, out);
      default:
        return NotAMessage("it has a group");
    }
  }

  // An unknown field: the message is refused, but what is known of it is read,
  // unless too much is not.
  absl::Status PassOver(const MessagePlan& message, const FieldPlan* plan,
                        uint32_t tag) {
    if (unknown_.ok()) unknown_ = Unknown(message, plan, tag);
    const int begin = in_.CurrentPosition();
    const bool skipped = WireFormatLite::SkipField(&in_, tag);
    unknown_bytes_ +=
        static_cast<size_t>(1 + in_.CurrentPosition() - begin);  // with its tag
    return skipped && Left() >= 0 && unknown_bytes_ <= kMostOtherBytes
               ? absl::OkStatus()
               : unknown_;
  }

  // To protobuf, a field of another wire type is unknown, too.
  static absl::Status Unknown(const MessagePlan& message, const FieldPlan* plan,
                              uint32_t tag) {
    if (plan == nullptr) {
      return absl::InvalidArgumentError(
          absl::StrCat("field ", WireFormatLite::GetTagFieldNumber(tag), " of ",
                       message.message->name(), " is unknown to this server"));
    }
    return absl::InvalidArgumentError(
        absl::StrCat(plan->field->name(), ": wire type ",
                     static_cast<int>(WireFormatLite::GetTagWireType(tag)),
                     " is not its own"));
  }

  absl::Status CopyVarint(const pb::FieldDescriptor& field, Skeleton& out) {
    uint64_t value = 0;
    if (!in_.ReadVarint64(&value) || Left() < 0) return Cut(field);
    out.AppendVarint(value);
    return absl::OkStatus();
  }

  absl::Status CopyDelimited(const FieldPlan& plan, absl::string_view within,
                             Skeleton& out) {
    uint64_t length = 0;
    if (!ReadVarint(kMostLengthBytes, length) ||
        length > static_cast<uint64_t>(Left())) {
      return Cut(*plan.field);
    }
    const auto size = static_cast<int>(length);
    if (plan.elements) return TakeElements(plan, within, size, out);
    return plan.message != nullptr ? CopySubmessage(plan, size, out)
                                   : CopyText(plan, size, out);
  }

  absl::Status CopySubmessage(const FieldPlan& plan, int size, Skeleton& out) {
    const int end = std::exchange(end_, in_.CurrentPosition() + size);
    const size_t begin = out.Begin();
    absl::Status status = CopyMessage(*plan.message, plan.field->name(), out);
    out.End(begin);
    end_ = end;
    return status;
  }

  // Bytes, a string or packed numbers.
  absl::Status CopyText(const FieldPlan& plan, int size, Skeleton& out) {
    const pb::FieldDescriptor& field = *plan.field;
    if (static_cast<size_t>(size) > rules_.most_other_bytes_) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.name(), ": takes ", size, " bytes (at most ",
                       rules_.most_other_bytes_, " are read)"));
    }
    out.AppendVarint(static_cast<uint64_t>(size));
    const size_t begin = out.size();
    absl::Status status = CopyRaw(field, size, out);
    if (!status.ok()) return status;
    if (plan.utf8 && !IsUtf8(out.bytes().substr(begin))) {
      return absl::InvalidArgumentError(
          absl::StrCat(field.name(), ": is not UTF-8"));
    }
    return absl::OkStatus();
  }

  // The one copy of a tensor's bytes, if any; `size` bytes are there.
  absl::Status TakeElements(const FieldPlan& plan, absl::string_view within,
                            int size, Skeleton& out) {
    const pb::FieldDescriptor& field = *plan.field;
    const auto index = static_cast<Mark>(result_.elements_.size());
    if (size > 0) {
      if (index == kMostElements) {
        return absl::InvalidArgumentError(absl::StrCat(
            field.name(), ": more than ", kMostElements, " tensors"));
      }
      // Those of typed contents are copied once more.
      const bool stay = plan.mark_number == 0;
      const PinnedReserve none;
      absl::StatusOr<TensorBytes> elements =
          ReadTensorBytes(stream_, in_, size, stay ? pinned_ : none);
      if (!elements.ok()) {
        if (!absl::IsInvalidArgument(elements.status())) {
          return elements.status();
        }
        return NotAMessage(absl::StrCat(within, within.empty() ? "" : ": ",
                                        field.name(), " is cut"));
      }
      result_.elements_.push_back(*std::move(elements));
    }
    size_t begin = 0;
    if (plan.mark_number != 0) {
      begin = out.Begin();
      out.AppendVarint(WireFormatLite::MakeTag(
          plan.mark_number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED));
    }
    const size_t mark_bytes = size > 0 ? sizeof index : 0;
    out.AppendVarint(mark_bytes);
    out.Append(&index, mark_bytes);
    if (plan.mark_number != 0) out.End(begin);
    return absl::OkStatus();
  }

  absl::Status CopyRaw(const pb::FieldDescriptor& field, int size,
                       Skeleton& out) {
    const auto count = static_cast<size_t>(size);
    if (Left() < size || !in_.ReadRaw(out.Room(count), size)) return Cut(field);
    out.Grow(count);
    return absl::OkStatus();
  }

  // Bytes of the message that is being copied; below 0 where a field passes its
  // end.
  int Left() const { return end_ - in_.CurrentPosition(); }

  bool ReadVarint(int most_bytes, uint64_t& value) {
    const int begin = in_.CurrentPosition();
    return in_.ReadVarint64(&value) &&
           in_.CurrentPosition() - begin <= most_bytes && Left() >= 0;
  }

  absl::Status NotAMessage(absl::string_view what) const {
    return absl::InvalidArgumentError(
        absl::StrCat("the bytes are not ",
                     rules_.root_->message->name()[0] == 'A' ? "an " : "a ",
                     rules_.root_->message->name(), ": ", what));
  }
  absl::Status Cut(const pb::FieldDescriptor& field) const {
    return NotAMessage(absl::StrCat(field.name(), " is cut or malformed"));
  }

  const SplitRules& rules_;
  const PinnedReserve& pinned_;
  SliceInputStream stream_;
  pb::io::CodedInputStream in_;
  int end_ = 0;  // of the message that is being copied
  MessageElements result_;
  absl::Status unknown_;  // the error of the first unknown field
  size_t unknown_bytes_ = 0;
};

absl::StatusOr<MessageElements> SplitMessage(ReceivedMessage slices,
                                             const SplitRules& rules,
                                             pb::Message& message,
                                             const PinnedReserve& pinned) {
  return MessageSplitter(std::move(slices), rules, pinned).Split(message);
}

}  // namespace attention::server
