// What attention-server itself writes while it is given what it does not
// expect.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/service/infer_requests.h"
#include "tests/service/requests.h"
#include "tests/service/running_server.h"
#include "tests/service/wire_client.h"

namespace attention::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// ModelReadyRequest { string name = 1 } with a name that is not UTF-8.
const char* const kNotUtf8 = "\x0a\x02\xff\xfe";

// Everything that a server writes that is sent that name.
std::vector<std::string> LinesAfterBadUtf8(const std::string& level) {
  const RunningServer server =
      Launch({"--log-format", "json", "--log-level", level});
  WireClient client(server.address);
  EXPECT_FALSE(client.Call(InferenceMethod("ModelReady"), kNotUtf8).ok());
  server.process->Signal(SIGTERM);
  return absl::StrSplit(server.process->ReadAll(), '\n', absl::SkipEmpty());
}

TEST(ServerLogTest, EveryLineIsJsonAlsoWhatLibrariesSay) {
  bool told = false;
  for (const std::string& line : LinesAfterBadUtf8("debug")) {
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    told = told || line.find("invalid UTF-8") != std::string::npos;
  }
  EXPECT_TRUE(told);
}

TEST(ServerLogTest, RequestsHaveFieldsInJson) {
  const RunningServer server =
      Launch({"--log-format", "json", "--log-level", "debug"});
  WireClient client(server.address);
  ExpectGoodReply(client.Attend(GoodRequest("an id")), "an id");
  EXPECT_FALSE(client.Attend(v1::AttendRequest()).ok());
  server.process->Signal(SIGTERM);
  std::vector<std::string> outcomes;
  std::vector<std::string> events;
  const std::string log = server.process->ReadAll();
  for (const auto line : absl::StrSplit(log, '\n', absl::SkipEmpty())) {
    const auto object = nlohmann::json::parse(line);
    if (!object.contains("event")) continue;
    events.push_back(object["event"]);
    if (events.back() != "request") continue;
    outcomes.push_back(object["outcome"]);
    EXPECT_EQ(object["operation"], "attend");
    EXPECT_GT(object["transfer_seconds"].get<double>(), 0);
    if (outcomes.back() != "answered") continue;
    EXPECT_EQ(object["id"], "an id");
    EXPECT_EQ(object["model"], "scaled_dot_product_attention");
    EXPECT_TRUE(object.contains("shapes"));
  }
  EXPECT_THAT(outcomes, ElementsAre("answered", "refused"));
  EXPECT_THAT(events,
              ElementsAre("start", "request", "request", "drain", "stop"));
}

TEST(ServerLogTest, ACallersBadUtf8IsNotWorthALineAtInfo) {
  for (const std::string& line : LinesAfterBadUtf8("info")) {
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
    EXPECT_THAT(line, Not(HasSubstr("UTF-8")));
  }
}

TEST(ServerLogTest, WhyItDoesNotStartIsJsonToo) {
  ChildProcess server(ATTENTION_SERVER_BINARY,
                      {"--grpc-port", "0", "--http-port", "0", "--log-format",
                       "json", "--model-repository", "/nonexistent"});
  // Another line may say which backends there are.
  const std::vector<std::string> lines =
      absl::StrSplit(server.ReadAll(), '\n', absl::SkipEmpty());
  EXPECT_EQ(server.Wait(), 1);
  ASSERT_FALSE(lines.empty());
  for (const std::string& line : lines) {
    ASSERT_TRUE(nlohmann::json::accept(line)) << line;
  }
  EXPECT_THAT(
      nlohmann::json::parse(lines.back())["message"].get<std::string>(),
      AllOf(HasSubstr("--model-repository"), HasSubstr("/nonexistent")));
}

TEST(ServerLogTest, WarnsOfAMisspeltVariable) {
  ::setenv("ATTENTION_GRPC_PROT", "9000", /*overwrite=*/1);
  const RunningServer server = Launch();
  ::unsetenv("ATTENTION_GRPC_PROT");
  server.process->Signal(SIGTERM);
  EXPECT_THAT(server.process->ReadAll(),
              HasSubstr("warning environment: ATTENTION_GRPC_PROT is not an "
                        "option and is ignored (nearest: ATTENTION_GRPC_PORT"));
}

// HTTP/2 by hand, for what no client library does on purpose.
class RawConnection {
 public:
  explicit RawConnection(const std::string& address) {
    const size_t colon = address.find(':');
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port =
        htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
    inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr);
    socket_ = ::socket(AF_INET, SOCK_STREAM, 0);
    EXPECT_EQ(::connect(socket_, reinterpret_cast<sockaddr*>(&to), sizeof(to)),
              0);
    Send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    SendFrame(kSettings, 0, 0, "");
  }
  ~RawConnection() { ::close(socket_); }
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  // A call's headers and no more than the beginning of its message.
  void BeginCall(const std::string& method) {
    SendFrame(kHeaders, kEndHeaders, 1,
              Field(":method", "POST") + Field(":scheme", "http") +
                  Field(":path", method) + Field(":authority", "test") +
                  Field("content-type", "application/grpc") +
                  Field("te", "trailers"));
    // Not compressed, 1000 bytes.
    SendFrame(kData, 0, 1, std::string("\0\0\0\x03\xe8", 5) + "begin");
  }
  void ResetCall() {
    SendFrame(kResetStream, 0, 1, std::string("\0\0\0\x08", 4));  // CANCEL
  }
  // Returns when the server has read everything that was sent before.
  void Settle() {
    SendFrame(kPing, 0, 0, "8 bytes.");
    while (true) {
      const std::string head = Receive(9);
      if (head.empty()) return;
      const size_t size = static_cast<uint8_t>(head[0]) << 16 |
                          static_cast<uint8_t>(head[1]) << 8 |
                          static_cast<uint8_t>(head[2]);
      Receive(size);
      if (head[3] == kPing && (head[4] & kAck) != 0) return;
    }
  }

 private:
  enum Type : char {
    kData = 0,
    kHeaders = 1,
    kResetStream = 3,
    kSettings = 4,
    kPing = 6
  };
  static constexpr char kEndHeaders = 4;
  static constexpr char kAck = 1;

  // A header field as HPACK has those that are in no table.
  static std::string Field(const std::string& name, const std::string& value) {
    return std::string(1, '\0') + static_cast<char>(name.size()) + name +
           static_cast<char>(value.size()) + value;
  }
  void SendFrame(Type type, char flags, char stream,
                 const std::string& payload) {
    std::string frame(2, '\0');
    frame += {static_cast<char>(payload.size()), type, flags, 0, 0, 0, stream};
    Send(frame + payload);
  }
  void Send(const std::string& bytes) {
    EXPECT_EQ(::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }
  // Exactly so many bytes; none where the connection has ended.
  std::string Receive(size_t size) {
    std::string bytes(size, '\0');
    if (size > 0 && ::recv(socket_, bytes.data(), size, MSG_WAITALL) !=
                        static_cast<ssize_t>(size)) {
      ADD_FAILURE() << "the server has closed the connection";
      return "";
    }
    return bytes;
  }

  int socket_ = -1;
};

TEST(ServerLogTest, ACallThatIsResetBeforeItsMessageCameIsCancelled) {
  const RunningServer server = Launch({"--log-level", "debug"});
  RawConnection connection(server.address);
  connection.BeginCall(kAttend);
  connection.Settle();
  connection.ResetCall();
  EXPECT_THAT(server.process->ReadLineWith("attend id="),
              AllOf(HasSubstr("debug"), HasSubstr("status=CANCELLED")));
}

TEST(ServerLogTest, AReaderWhoIsGoneHoldsUpNeitherCallsNorTheEnd) {
  const RunningServer server = Launch({"--log-level", "debug"});
  WireClient client(server.address);
  // Nothing is read meanwhile, and a pipe holds some hundred lines.
  for (int i = 0; i < 2000; ++i) {
    ASSERT_EQ(client.Attend(v1::AttendRequest()).status().code(),
              absl::StatusCode::kInvalidArgument);
  }
  ExpectGoodReply(client.Attend(GoodRequest()));
  server.process->Signal(SIGTERM);
  EXPECT_EQ(server.process->Wait(), 0);
}

// The stream is read again after the queue of lines is full.
TEST(ServerLogTest, AReaderWhoIsBackIsToldHowManyLinesWereDropped) {
  const RunningServer server = Launch({"--log-level", "debug"});
  WireClient client(server.address);
  for (int i = 0; i < 6000; ++i) (void)client.Attend(v1::AttendRequest());
  EXPECT_THAT(server.process->ReadLineWith("dropped"),
              AllOf(HasSubstr("log: "), HasSubstr(" lines were dropped")));
  server.process->Signal(SIGTERM);
  EXPECT_THAT(server.process->ReadAll(),
              HasSubstr("every request was answered"));
  EXPECT_EQ(server.process->Wait(), 0);
}

TEST(ServerLogTest, ManyRefusalsAreSomeLinesAndACount) {
  const RunningServer server = Launch();
  WireClient client(server.address);
  for (int i = 0; i < 300; ++i) (void)client.Attend(v1::AttendRequest());
  server.process->Signal(SIGTERM);
  EXPECT_THAT(server.process->ReadAll(),
              AllOf(HasSubstr("refused attend"),
                    HasSubstr("refused or failed, without a line for each")));
}

}  // namespace
}  // namespace attention::test
