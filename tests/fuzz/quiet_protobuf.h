#ifndef ATTENTION_TESTS_FUZZ_QUIET_PROTOBUF_H_
#define ATTENTION_TESTS_FUZZ_QUIET_PROTOBUF_H_

#include <google/protobuf/stubs/logging.h>

namespace attention {

/// Has protobuf say nothing on stderr: it reports each string that is not
/// UTF-8. The first call does it, and later ones cost nothing.
inline void QuietenProtobuf() {
  static const auto previous_handler = google::protobuf::SetLogHandler(nullptr);
  static_cast<void>(previous_handler);
}

}  // namespace attention

#endif  // ATTENTION_TESTS_FUZZ_QUIET_PROTOBUF_H_
