#include "tests/service/wrong_input.h"

#include <gmock/gmock.h>

#include "tests/service/gated_server.h"
#include "tests/service/wire_client.h"

namespace attention::test {

void ExpectRefusal(const absl::Status& status, absl::StatusCode code,
                   const std::vector<std::string>& message) {
  EXPECT_EQ(status.code(), code) << status;
  const std::string text(status.message());
  for (size_t i = 0; i < message.size(); ++i) {
    if (i == 0) {
      EXPECT_THAT(text, testing::StartsWith(message[i]));
    } else {
      EXPECT_THAT(text, testing::HasSubstr(message[i]));
    }
  }
}

void ExpectRefusedAndServing(const WrongInput& row) {
  TileGate gate;
  const auto server = StartServer(TestOptions(), &gate);
  WireClient client(server->address());
  v1::AttendRequest request = GoodRequest("bad");
  row.spoil(request);
  ExpectRefusal(client.Attend(request).status(),
                absl::StatusCode::kInvalidArgument, row.message);
  EXPECT_EQ(gate.tiles(), 0) << "nothing is computed of a refused request";
  ExpectGoodReply(client.Attend(GoodRequest()));
}

}  // namespace attention::test
