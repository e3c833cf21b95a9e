#ifndef ATTENTION_TESTS_SERVICE_FAULTY_SERVER_H_
#define ATTENTION_TESTS_SERVICE_FAULTY_SERVER_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/service/running_server.h"
#include "tests/service/wire_client.h"
#include "tests/support/faults/planned_faults.h"
#include "tests/support/temporary_folder.h"

namespace attention::test {

/// attention-server with a plan of faults, of which there are none at first.
class FaultyServerTest : public ::testing::Test {
 protected:
  /// Starts it with these arguments.
  void Start(const std::vector<std::string>& arguments = {}) {
    server_ = Launch(arguments, faults_.BeforeProgram());
    ASSERT_NE(server_.address, "") << server_.process->ReadAll();
    client_ = std::make_unique<WireClient>(server_.address);
  }

  FaultPlan& plan() { return faults_.plan(); }

  const TemporaryFolder folder_;  // for the server's files
  PlannedFaults faults_;
  RunningServer server_;
  std::unique_ptr<WireClient> client_;
};

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SERVICE_FAULTY_SERVER_H_
