// The Unix-domain socket beside the port: who may connect, and what becomes of
// the file.
#include "server/transport/unix_socket.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/service/gated_server.h"
#include "tests/service/requests.h"
#include "tests/service/wire_client.h"
#include "tests/service/wrong_input.h"
#include "tests/support/child_process.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {
namespace {

namespace fs = std::filesystem;
using absl::StatusCode;
using ::testing::HasSubstr;

// Each test has a path of its own, at which there is nothing.
class UnixSocketTest : public testing::Test {
 protected:
  UnixSocketTest() { fs::remove(path_); }
  ~UnixSocketTest() override { fs::remove(path_); }

  server::ServerOptions Options() const {
    server::ServerOptions options = TestOptions();
    options.grpc_unix_socket = path_;
    return options;
  }

  absl::Status Refusal() const {
    const auto server = server::Server::Start(Options());
    return server.status();
  }

  const TemporaryFolder folder_;
  const std::string path_ = folder_.path() + "/s";
};

// Leaves a socket at `path` on which nobody listens.
void LeaveSocket(const std::string& path) {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(path.begin(), path.end(), address.sun_path);
  ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address),
                   sizeof(address)),
            0);
  ::close(socket);
}

TEST_F(UnixSocketTest, AnswersBesideThePort) {
  const auto server = StartServer(Options());
  WireClient by_socket("unix:" + path_);
  ExpectGoodReply(by_socket.Attend(GoodRequest()));
  WireClient by_port(server->address());
  ExpectGoodReply(by_port.Attend(GoodRequest()));
}

TEST_F(UnixSocketTest, CarriesLargeRequestsAndStreams) {
  const auto server = StartServer(Options());
  WireClient client("unix:" + path_);
  const auto reply = client.Attend(LargeRequest());
  ASSERT_TRUE(reply.ok()) << reply.status();
  const auto stream = client.OpenStream(kAttendStream);
  ASSERT_TRUE(stream->Write(GoodRequest("1").SerializeAsString()));
  EXPECT_TRUE(stream->Read());
}

TEST_F(UnixSocketTest, MayHaveAnyCharactersInItsName) {
  server::ServerOptions options = Options();
  options.grpc_unix_socket += " %41?#";
  {
    const auto server = StartServer(options);
    EXPECT_TRUE(fs::is_socket(options.grpc_unix_socket));
    WireClient client(server::SocketTarget(options.grpc_unix_socket));
    ExpectGoodReply(client.Attend(GoodRequest()));
  }
  EXPECT_FALSE(fs::exists(options.grpc_unix_socket));
}

TEST_F(UnixSocketTest, IsItsUsersAlone) {
  const auto server = StartServer(Options());
  struct stat file {};
  ASSERT_EQ(::stat(path_.c_str(), &file), 0);
  EXPECT_EQ(file.st_mode & 0777, 0600u);
}

TEST_F(UnixSocketTest, LeavesTheModeOfOtherFilesAlone) {
  const mode_t before = ::umask(022);
  const auto server = StartServer(Options());
  EXPECT_EQ(::umask(before), 022u);
}

TEST_F(UnixSocketTest, IsRemovedWhenTheServerEnds) {
  StartServer(Options()).reset();
  EXPECT_FALSE(fs::exists(path_));
}

TEST_F(UnixSocketTest, IsNamedInTheSummary) {
  const auto server = StartServer(Options());
  EXPECT_THAT(server->Summary(), HasSubstr(" and unix:" + path_ + ","));
}

TEST_F(UnixSocketTest, ReplacesOneThatADeadServerLeft) {
  LeaveSocket(path_);
  const auto server = StartServer(Options());
  WireClient client("unix:" + path_);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST_F(UnixSocketTest, ReplacesOneOfAServerThatWasKilled) {
  ChildProcess killed(
      ATTENTION_SERVER_BINARY,
      {"--grpc-port", "0", "--http=false", "--grpc-unix-socket", path_});
  ASSERT_THAT(killed.ReadLineWith("listening on"), HasSubstr("unix:" + path_));
  killed.Signal(SIGKILL);
  ASSERT_EQ(killed.Wait(), -SIGKILL);
  ASSERT_TRUE(fs::exists(path_));
  const auto server = StartServer(Options());
  WireClient client("unix:" + path_);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST_F(UnixSocketTest, OfALivingServerIsRefusedAndGoesOn) {
  const auto first = StartServer(Options());
  ExpectRefusal(Refusal(), StatusCode::kUnavailable,
                {"cannot listen on unix:" + path_, "another program listens"});
  WireClient client("unix:" + path_);
  ExpectGoodReply(client.Attend(GoodRequest()));
}

TEST_F(UnixSocketTest, AFileThatIsNoSocketIsRefusedAndKept) {
  std::ofstream(path_) << "precious";
  ExpectRefusal(Refusal(), StatusCode::kInvalidArgument,
                {"cannot listen on unix:" + path_, "no socket"});
  EXPECT_EQ(fs::file_size(path_), 8u);
}

TEST_F(UnixSocketTest, AFolderThatIsNotThereIsAClearError) {
  server::ServerOptions options = Options();
  options.grpc_unix_socket = path_ + "/none/socket";
  const auto server = server::Server::Start(options);
  ExpectRefusal(server.status(), StatusCode::kUnavailable,
                {"cannot listen on unix:" + path_, "No such file"});
}

TEST_F(UnixSocketTest, ATakenPortIsStillNamed) {
  const auto first = StartServer();
  server::ServerOptions options = Options();
  options.grpc_port = first->port();
  ExpectRefusal(server::Server::Start(options).status(),
                StatusCode::kUnavailable, {"", first->address(), "in use"});
}

}  // namespace
}  // namespace attention::test
