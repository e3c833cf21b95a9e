#include "server/callers/callers_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/support/status_matchers.h"

namespace attention::server {
namespace {

using ::attention::test::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

// printf %s secret | sha256sum
constexpr char kHash[] =
    "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b";

TEST(CallersFile, KnowsTokensAndCertificates) {
  const auto table = ParseCallers(std::string(R"({"callers": [
    {"name": "ranker", "tokens_sha256": [")") +
                                  kHash + R"("]},
    {"name": "trainer", "certificates": ["spiffe://a/trainer", "t.example"]}
  ]})");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_EQ(table->by_name.size(), 2u);
  ASSERT_NE(table->OfToken("secret"), nullptr);
  EXPECT_EQ(table->OfToken("secret")->name, "ranker");
  EXPECT_EQ(table->by_certificate.at("t.example")->name, "trainer");
  for (const char* wrong : {"", "secre", "secrett", "Secret", kHash}) {
    EXPECT_EQ(table->OfToken(wrong), nullptr) << wrong;
  }
}

TEST(CallersFile, AHashInCapitalsIsTheSame) {
  std::string hash = kHash;
  for (char& c : hash) c = static_cast<char>(std::toupper(c));
  const auto table = ParseCallers(
      R"({"callers": [{"name": "a", "tokens_sha256": [")" + hash + R"("]}]})");
  ASSERT_TRUE(table.ok()) << table.status();
  EXPECT_NE(table->OfToken("secret"), nullptr);
}

TEST(CallersFile, WhatIsLeftOutIsNotAllowedAndNotLimited) {
  const auto table =
      ParseCallers(R"({"callers": [{"name": "a", "certificates": ["a"]}]})");
  ASSERT_TRUE(table.ok()) << table.status();
  const Caller& caller = *table->by_certificate.at("a");
  EXPECT_FALSE(caller.Has(Right::kSharedMemory));
  EXPECT_FALSE(caller.Has(Right::kModelControl));
  EXPECT_EQ(caller.limits.max_requests_in_flight, 0);
  EXPECT_EQ(caller.limits.max_bytes_in_flight, 0);
  EXPECT_EQ(caller.limits.max_compute_time.count(), 0);
}

TEST(CallersFile, HasRightsAndLimits) {
  const auto table = ParseCallers(R"({"callers": [{
    "name": "a", "certificates": ["a"], "may": ["shared_memory"],
    "max_requests_in_flight": 3, "max_bytes_in_flight": 4096,
    "max_requests_per_second": 5, "max_bytes_per_second": 6,
    "max_dimension": 7, "max_weights_bytes": 8, "max_compute_seconds": 1.5}, {
    "name": "b", "certificates": ["b"],
    "may": ["model_control", "sequence_files"]}]})");
  ASSERT_TRUE(table.ok()) << table.status();
  const Caller& a = *table->by_certificate.at("a");
  EXPECT_TRUE(a.Has(Right::kSharedMemory));
  EXPECT_FALSE(a.Has(Right::kModelControl));
  EXPECT_EQ(a.limits.max_requests_in_flight, 3);
  EXPECT_EQ(a.limits.max_bytes_in_flight, 4096);
  EXPECT_EQ(a.limits.max_requests_per_second, 5);
  EXPECT_EQ(a.limits.max_bytes_per_second, 6);
  EXPECT_EQ(a.limits.max_dimension, 7);
  EXPECT_EQ(a.limits.max_weights_bytes, 8);
  EXPECT_EQ(a.limits.max_compute_time.count(), 1500);
  EXPECT_TRUE(table->by_certificate.at("b")->Has(Right::kModelControl));
  EXPECT_TRUE(table->by_certificate.at("b")->Has(Right::kSequenceFiles));
}

struct WrongFile {
  const char* name;
  const char* text;
  const char* key;
  const char* why;
};

class WrongCallersFile : public testing::TestWithParam<WrongFile> {};

TEST_P(WrongCallersFile, IsRefusedByItsKey) {
  EXPECT_THAT(
      ParseCallers(GetParam().text),
      StatusIs(absl::StatusCode::kInvalidArgument,
               AllOf(HasSubstr(GetParam().key), HasSubstr(GetParam().why))));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongCallersFile,
    testing::Values(
        WrongFile{"NoJson", "callers:", "parse error", ""},
        WrongFile{"NoCallers", "{}", "callers", "expected an array"},
        WrongFile{"UnknownKey", R"({"caller": []})", "caller", "unknown key"},
        WrongFile{"UnknownKeyOfACaller",
                  R"({"callers": [{"name": "a", "token": "x"}]})",
                  "callers[0].token", "unknown key"},
        WrongFile{"NoName", R"({"callers": [{}]})", "callers[0].name",
                  "expected 1 to 128"},
        WrongFile{"NameWithALine", R"({"callers": [{"name": "a\nb"}]})",
                  "callers[0].name", "expected 1 to 128"},
        WrongFile{"NameTwice", R"({"callers": [{"name": "a"}, {"name": "a"}]})",
                  "callers[1].name", "comes twice"},
        WrongFile{
            "ATokenAndNotItsHash",
            R"({"callers": [{"name": "a", "tokens_sha256": ["secret"]}]})",
            "callers[0].tokens_sha256", "64 hexadecimal digits"},
        WrongFile{"CertificateOfTwo",
                  R"({"callers": [{"name": "a", "certificates": ["x"]},
                                  {"name": "b", "certificates": ["x"]}]})",
                  "callers[1].certificates", "comes twice"},
        WrongFile{"UnknownRight",
                  R"({"callers": [{"name": "a", "may": ["everything"]}]})",
                  "callers[0].may",
                  "expected shared_memory, model_control, sequence_files"},
        WrongFile{
            "NoRequests",
            R"({"callers": [{"name": "a", "max_requests_in_flight": 0}]})",
            "callers[0].max_requests_in_flight", "1 or more"},
        WrongFile{
            "BytesAsText",
            R"({"callers": [{"name": "a", "max_bytes_in_flight": "1M"}]})",
            "callers[0].max_bytes_in_flight", "1 or more"},
        WrongFile{"NoTime",
                  R"({"callers": [{"name": "a", "max_compute_seconds": 0}]})",
                  "callers[0].max_compute_seconds", "0.001 to 86400"}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace attention::server
