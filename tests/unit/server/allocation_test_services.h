#ifndef ATTENTION_TESTS_UNIT_SERVER_ALLOCATION_TEST_SERVICES_H_
#define ATTENTION_TESTS_UNIT_SERVER_ALLOCATION_TEST_SERVICES_H_

#include <gtest/gtest.h>

#include "core/worker_pool.h"
#include "server/scheduling/call.h"
#include "server/scheduling/request_queue.h"
#include "server/scheduling/task.h"

namespace attention::server {

/// What calls run with, of one worker.
class AllocationTestServices : public ::testing::Test {
 protected:
  TaskServices Services() {
    return {.workers = workers_,
            .admission = admission_,
            .queue = queue_,
            .costs = costs_,
            .metrics = &metrics_};
  }

  WorkerPool workers_{1};
  Ledger ledger_;
  Admission admission_{ledger_, 8, 1 << 20};
  CostModel costs_;
  RequestMetrics metrics_;
  ActiveCalls calls_;
  RequestQueue queue_{workers_};
};

}  // namespace attention::server

#endif  // ATTENTION_TESTS_UNIT_SERVER_ALLOCATION_TEST_SERVICES_H_
