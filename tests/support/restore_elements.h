#ifndef ATTENTION_TESTS_SUPPORT_RESTORE_ELEMENTS_H_
#define ATTENTION_TESTS_SUPPORT_RESTORE_ELEMENTS_H_

#include <google/protobuf/message.h>

#include <vector>

#include "attention/v1/attention.pb.h"
#include "server/wire/message_splitter.h"

namespace attention::server {

/// Puts the elements of an AttendRequest that was split back in place of their
/// marks: it is then what the generated class would have parsed.
inline void RestoreElements(MessageElements& elements,
                            google::protobuf::Message& message) {
  const google::protobuf::Reflection& reflection = *message.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection.ListFields(message, &fields);
  for (const google::protobuf::FieldDescriptor* field : fields) {
    if (field->message_type() == nullptr) continue;
    if (field->is_repeated()) {
      for (int n = 0; n < reflection.FieldSize(message, field); ++n) {
        RestoreElements(elements,
                        *reflection.MutableRepeatedMessage(&message, field, n));
      }
      continue;
    }
    google::protobuf::Message* inner =
        reflection.MutableMessage(&message, field);
    if (field->message_type() != v1::Tensor::descriptor()) {
      RestoreElements(elements, *inner);
      continue;
    }
    auto& tensor = static_cast<v1::Tensor&>(*inner);
    TensorBytes* const bytes = elements.Find(tensor.data());
    if (bytes == nullptr) continue;
    bytes->Gather();
    tensor.set_data(bytes->bytes().data(), bytes->bytes().size());
  }
}

}  // namespace attention::server

#endif  // ATTENTION_TESTS_SUPPORT_RESTORE_ELEMENTS_H_
