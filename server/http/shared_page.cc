#include "server/http/shared_page.h"

#include <grpcpp/support/slice.h>
#include <spdlog/spdlog.h>

#include <chrono>
#include <exception>
#include <utility>

#include "absl/strings/str_cat.h"

namespace attention::server {
namespace {

using Clock = std::chrono::steady_clock;

// From the beginning of a page to that of the next.
constexpr std::chrono::milliseconds kBetweenPages{50};

}  // namespace

SharedPage::SharedPage(std::string content_type, Write write)
    : content_type_(std::move(content_type)),
      write_(std::move(write)),
      thread_([this](const std::stop_token& stop) { Run(stop); }) {}

void SharedPage::Answer(std::shared_ptr<HttpExchange> exchange) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(exchange));
  }
  changed_.notify_one();
}

void SharedPage::Run(const std::stop_token& stop) {
  Clock::time_point next = Clock::now();
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, stop, [this] { return !waiting_.empty(); });
    changed_.wait_until(lock, stop, next, [] { return false; });
    if (stop.stop_requested()) return;
    next = Clock::now() + kBetweenPages;
    const Exchanges exchanges = std::exchange(waiting_, {});
    lock.unlock();
    AnswerAll(exchanges);
    lock.lock();
  }
}

void SharedPage::AnswerAll(const Exchanges& exchanges) const {
  try {
    const grpc::Slice page(write_());
    for (const auto& exchange : exchanges) {
      exchange->Reply({.content_type = content_type_, .pieces = {page}});
    }
  } catch (const std::exception& error) {
    spdlog::warn(absl::StrCat("http: ", exchanges.front()->request().path, ": ",
                              error.what()));
    // Those that have a reply keep it.
    for (const auto& exchange : exchanges) exchange->Reply({.status = 503});
  }
}

}  // namespace attention::server
