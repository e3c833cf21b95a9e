#include "server/telemetry/last_words.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdlib>
#include <new>

#include "tests/support/address_sanitizer.h"

namespace attention::server {
namespace {

// More than there is.
volatile size_t huge = size_t{1} << 62;

[[noreturn]] void AbortAfterAFailureThatWasHandled() {
  SayLastWords("text");
  NoteStart();
  ::operator delete(::operator new(huge, std::nothrow));
  std::abort();
}

[[noreturn]] void AbortForWantOfMemory() {
  SayLastWords("text");
  NoteStart();
  void* const memory = std::malloc(huge);
  if (memory == nullptr) std::abort();
  std::free(memory);
  std::exit(0);
}

[[noreturn]] void WaitForEver() {
  SayLastWords("text");
  EndAfter(std::chrono::milliseconds(1));
  while (true) ::pause();
}

TEST(LastWordsDeathTest, WhatDoesNotEndIsEnded) {
  EXPECT_EXIT(WaitForEver(), testing::ExitedWithCode(1), "has not ended");
}

TEST(LastWordsDeathTest, AFailureThatWasHandledDoesNotMakeAFaultWantOfMemory) {
  if (test::kAddressSanitizer) {
    GTEST_SKIP() << "the address sanitizer's operator new asks no new-handler";
  }
  EXPECT_EXIT(AbortAfterAFailureThatWasHandled(),
              testing::KilledBySignal(SIGABRT), "a fault in the program");
}

TEST(LastWordsDeathTest, AnAbortWhereMallocHasFailedIsWantOfMemory) {
  EXPECT_EXIT(AbortForWantOfMemory(), testing::ExitedWithCode(1),
              "there is no memory to be had");
}

}  // namespace
}  // namespace attention::server
