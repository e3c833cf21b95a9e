#include "server/services/call_counter.h"

#include <grpcpp/server_context.h>

#include <chrono>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attention::server {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

const char* TypeName(ServerRpcInfo::Type type) {
  switch (type) {
    case ServerRpcInfo::Type::UNARY:
      return "unary";
    case ServerRpcInfo::Type::CLIENT_STREAMING:
      return "client_stream";
    case ServerRpcInfo::Type::SERVER_STREAMING:
      return "server_stream";
    case ServerRpcInfo::Type::BIDI_STREAMING:
      return "bidi_stream";
  }
  return "";
}

// "/service/method"
std::string WholeName(Rpc rpc) {
  return absl::StrCat("/", NameOf(rpc).service, "/", NameOf(rpc).method);
}

CallCounter::OfMethod NewMethod(const ServerRpcInfo& info) {
  const absl::string_view whole = info.method();
  const size_t slash = whole.rfind('/');
  return {TypeName(info.type()),
          static_cast<std::string>(whole.substr(1, slash - 1)),
          static_cast<std::string>(whole.substr(slash + 1)),
          {}};
}

}  // namespace

// One call.
class CallCounter::Interceptor final : public grpc::experimental::Interceptor {
 public:
  Interceptor(const grpc::ServerContextBase& context, std::mutex& mutex,
              RequestMetrics::OfRpc& counts)
      : context_(context), mutex_(mutex), counts_(counts) {
    const std::lock_guard lock(mutex_);
    ++counts_.started;
  }

  ~Interceptor() override {
    if (!ended_) End(grpc::StatusCode::CANCELLED);
  }

  void Intercept(InterceptorBatchMethods* batch) override {
    const auto comes = [batch](InterceptionHookPoints point) {
      return batch->QueryInterceptionHookPoint(point);
    };
    if (comes(InterceptionHookPoints::POST_RECV_MESSAGE) &&
        batch->GetRecvMessage() != nullptr) {
      Count(counts_.received);
    }
    if (comes(InterceptionHookPoints::PRE_SEND_MESSAGE)) Count(counts_.sent);
    if (comes(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // What gRPC's own services say to a caller that has gone is UNKNOWN.
      const grpc::StatusCode code = batch->GetSendStatus().error_code();
      const bool gone = code != grpc::StatusCode::OK && context_.IsCancelled();
      End(gone ? grpc::StatusCode::CANCELLED : code);
    }
    batch->Proceed();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void Count(uint64_t& what) {
    const std::lock_guard lock(mutex_);
    ++what;
  }

  void End(grpc::StatusCode code) {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ++counts_.by_code[static_cast<size_t>(code) % kStatusCodes];
    const std::chrono::nanoseconds took = Clock::now() - begin_;
    counts_.time.Observe(took.count());
  }

  const grpc::ServerContextBase& context_;
  std::mutex& mutex_;
  RequestMetrics::OfRpc& counts_;
  const Clock::time_point begin_ = Clock::now();
  bool ended_ = false;
};

RequestMetrics::OfRpc& CallCounter::Find(const ServerRpcInfo& info) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = methods_.try_emplace(info.method());
  if (is_new) place->second = NewMethod(info);
  return place->second.counts;
}

class CallCounter::Factory final : public ServerInterceptorFactoryInterface {
 public:
  explicit Factory(CallCounter& counter) : counter_(counter) {
    for (size_t i = 1; i < kRpcs; ++i) {
      elsewhere_[i] = WholeName(static_cast<Rpc>(i));
    }
  }

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* info) override {
    const absl::string_view name = info->method();
    for (const std::string& other : elsewhere_) {
      if (name == other) return nullptr;
    }
    return new Interceptor(*info->server_context(), counter_.mutex_,
                           counter_.Find(*info));
  }

 private:
  CallCounter& counter_;
  std::array<std::string, kRpcs> elsewhere_;
};

std::unique_ptr<ServerInterceptorFactoryInterface> CallCounter::NewFactory() {
  return std::make_unique<Factory>(*this);
}

std::vector<CallCounter::OfMethod> CallCounter::Read() const {
  std::vector<OfMethod> methods;
  const std::lock_guard lock(mutex_);
  methods.reserve(methods_.size());
  for (const auto& [name, of] : methods_) methods.push_back(of);
  return methods;
}

}  // namespace attention::server
