#include "server/options/environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "server/options/flags.h"

namespace attention::server {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> Lines(const std::vector<std::string>& environment) {
  return UnknownVariables(environment, OptionVariables());
}

TEST(UnknownVariables, AMisspeltOneIsNamedBesideTheNearest) {
  EXPECT_THAT(Lines({"HOME=/", "ATTENTION_MAX_REQEST_BYTES=1GiB"}),
              ElementsAre(AllOf(HasSubstr("ATTENTION_MAX_REQEST_BYTES is not"),
                                HasSubstr("ATTENTION_MAX_REQUEST_BYTES;"))));
}

TEST(UnknownVariables, TheOptionsOwnAreKnown) {
  std::vector<std::string> environment = OptionVariables();
  for (std::string& variable : environment) variable += "=1";
  EXPECT_THAT(Lines(environment), IsEmpty());
}

TEST(UnknownVariables, SoAreThoseOfTheClientAndTheKernels) {
  EXPECT_THAT(
      Lines({"ATTENTION_SERVER=a:1", "ATTENTION_CPU_TARGET=AVX2", "PATH="}),
      IsEmpty());
}

TEST(UnknownVariables, KubernetesSetsSomeThatNobodyMisspelt) {
  EXPECT_THAT(Lines({"ATTENTION_SERVICE_HOST=10.0.0.1",
                     "ATTENTION_SERVICE_PORT_GRPC=8001",
                     "ATTENTION_PORT=tcp://10.0.0.1:8001",
                     "ATTENTION_PORT_8001_TCP_ADDR=10.0.0.1"}),
              IsEmpty());
}

TEST(UnknownVariables, AStrangeNameIsEscaped) {
  EXPECT_THAT(Lines({"ATTENTION_\xff=1"}),
              ElementsAre(HasSubstr("ATTENTION_\\xff is not")));
}

}  // namespace
}  // namespace attention::server
