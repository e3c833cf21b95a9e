#ifndef ATTENTION_TESTS_SERVICE_API_COMPATIBILITY_H_
#define ATTENTION_TESTS_SERVICE_API_COMPATIBILITY_H_

#include <google/protobuf/descriptor.pb.h>

#include <string>
#include <vector>

namespace attention::test {

/// What of `baseline` a caller that was built against it would miss in
/// `current`, or understand differently: a line for each message, field, enum
/// value and method that was removed, renumbered, renamed, retyped, or moved
/// into or out of a oneof. Empty where nothing broke; additions are no
/// breakage.
///   attention.v1.AttendRequest.softcap: has number 9 in the baseline, 99 now
std::vector<std::string> Breakages(
    const google::protobuf::FileDescriptorProto& baseline,
    const google::protobuf::FileDescriptorProto& current);

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_API_COMPATIBILITY_H_
