#ifndef ATTENTION_CLIENT_REQUEST_TENSORS_H_
#define ATTENTION_CLIENT_REQUEST_TENSORS_H_

#include <optional>
#include <variant>

#include "attention_client/client.h"

/// The tensors of a request by the wire's names, for who treats them alike.
namespace attention::client {

/// Calls visit(name, optional tensor) for those that any request may have.
/// `Request` is AttendRequest, const or not.
template <typename Request, typename Visit>
void ForEachOptionalTensor(Request& request, Visit visit) {
  visit("valid_lens", request.valid_lens);
  visit("attend_mask", request.attend_mask);
  visit("bias", request.bias);
  visit("alibi_slopes", request.alibi_slopes);
  visit("sinks", request.sinks);
  visit("query_offsets", request.query_offsets);
  visit("query_starts", request.query_starts);
  visit("key_starts", request.key_starts);
  visit("key_scale", request.key_scale);
  visit("value_scale", request.value_scale);
}

/// Calls visit(name, tensor) for each that is sent.
template <typename Visit>
void ForEachTensor(const AttendRequest& request, Visit visit) {
  const auto visit_optional = [&](const char* name,
                                  const std::optional<Tensor>& tensor) {
    if (tensor) visit(name, *tensor);
  };
  visit("query", request.query);
  if (!request.sequences) {
    visit("key", request.key);
    visit("value", request.value);
  } else if (const auto& append = request.sequences->append) {
    visit("key", append->key);
    visit("value", append->value);
    visit_optional("key_scale", append->key_scale);
    visit_optional("value_scale", append->value_scale);
  }
  if (const auto* additive = std::get_if<Additive>(&request.scoring)) {
    visit("w_q", additive->w_q);
    visit("w_k", additive->w_k);
    visit("w_v", additive->w_v);
  }
  if (const auto* bilinear = std::get_if<Bilinear>(&request.scoring)) {
    visit("m", bilinear->m);
  }
  ForEachOptionalTensor(request, visit_optional);
}

}  // namespace attention::client

#endif  // ATTENTION_CLIENT_REQUEST_TENSORS_H_
