#include "server/http/port/handshake_turns.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <stdexcept>
#include <string>

namespace attention::server {
namespace {

TEST(HandshakeTurnsTest, AddressesTakeTurns) {
  HandshakeTurns turns;
  std::promise<void> begun;
  std::promise<void> go;
  turns.Add("a", [&] {
    begun.set_value();
    go.get_future().wait();
  });
  begun.get_future().wait();
  std::string order;
  std::promise<void> over;
  turns.Add("a", [&] { order += "a1 "; });
  turns.Add("a", [&] { order += "a2 "; });
  turns.Add("a", [&] {
    order += "a3";
    over.set_value();
  });
  turns.Add("b", [&] { order += "b1 "; });
  go.set_value();
  over.get_future().wait();
  EXPECT_EQ(order, "a1 b1 a2 a3");
}

TEST(HandshakeTurnsTest, AStepThatThrowsEndsAlone) {
  HandshakeTurns turns;
  std::promise<void> over;
  turns.Add("a", [] { throw std::runtime_error("no memory"); });
  turns.Add("a", [&over] { over.set_value(); });
  over.get_future().wait();
}

TEST(HandshakeTurnsTest, WhatHasNotBegunIsForgottenAtTheEnd) {
  HandshakeTurns turns;
  turns.Stop();
  const auto kept = std::make_shared<int>(0);
  turns.Add("a", [kept] { FAIL() << "it was stopped"; });
  EXPECT_EQ(kept.use_count(), 1);
}

}  // namespace
}  // namespace attention::server
