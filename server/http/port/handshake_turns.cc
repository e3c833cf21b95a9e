#include "server/http/port/handshake_turns.h"

#include <spdlog/spdlog.h>

#include <exception>

#include "absl/strings/str_cat.h"

namespace attention::server {

HandshakeTurns::HandshakeTurns() : thread_([this] { Run(); }) {}

void HandshakeTurns::Add(const std::string& address, Step step) {
  const std::lock_guard lock(mutex_);
  if (stopped_) return;
  std::deque<Step>& steps = of_address_[address];
  steps.push_back(std::move(step));
  if (steps.size() == 1) turns_.push_back(address);
  added_.notify_one();
}

void HandshakeTurns::Stop() {
  std::unordered_map<std::string, std::deque<Step>> forgotten;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    added_.notify_one();
    forgotten.swap(of_address_);
    turns_.clear();
  }
  if (thread_.joinable()) thread_.join();
}

HandshakeTurns::Step HandshakeTurns::Next() {
  std::unique_lock lock(mutex_);
  added_.wait(lock, [this] { return stopped_ || !turns_.empty(); });
  if (stopped_) return nullptr;
  const std::string address = std::move(turns_.front());
  turns_.pop_front();
  const auto same = of_address_.find(address);
  Step step = std::move(same->second.front());
  same->second.pop_front();
  if (same->second.empty()) {
    of_address_.erase(same);
  } else {
    turns_.push_back(address);
  }
  return step;
}

void HandshakeTurns::Run() {
  while (const Step step = Next()) {
    try {
      step();
    } catch (const std::exception& error) {
      spdlog::warn(absl::StrCat("http: a TLS handshake: ", error.what()));
    }
  }
}

}  // namespace attention::server
