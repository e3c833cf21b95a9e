#include "server/services/call_counter.h"

#include <google/protobuf/descriptor.h>
#include <grpcpp/server_context.h>

#include <cstddef>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace attention::server {
namespace {

using grpc::experimental::InterceptionHookPoints;
using grpc::experimental::InterceptorBatchMethods;
using grpc::experimental::ServerInterceptorFactoryInterface;
using grpc::experimental::ServerRpcInfo;

// What all methods are called that no service has: their names are the
// callers'.
constexpr char kUnknown[] = "/unknown/unknown";

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

std::string WholeName(absl::string_view service, absl::string_view method) {
  return absl::StrCat("/", service, "/", method);
}

// The whole names of the services' methods.
absl::flat_hash_set<std::string> MethodNames(
    const std::vector<std::string>& services) {
  // gRPC's own, without a descriptor.
  absl::flat_hash_set<std::string> names = {"/grpc.health.v1.Health/Check",
                                            "/grpc.health.v1.Health/Watch"};
  const auto& pool = *google::protobuf::DescriptorPool::generated_pool();
  for (const std::string& service : services) {
    const auto* const found = pool.FindServiceByName(service);
    if (found == nullptr) continue;
    for (int i = 0; i < found->method_count(); ++i) {
      names.insert(WholeName(service, found->method(i)->name()));
    }
  }
  return names;
}

CallCounter::OfMethod NewMethod(absl::string_view whole, const char* type) {
  const size_t slash = whole.rfind('/');
  return {type,
          static_cast<std::string>(whole.substr(1, slash - 1)),
          static_cast<std::string>(whole.substr(slash + 1)),
          {}};
}

}  // namespace

CallCounter::Call::Call(std::mutex& mutex, RequestMetrics::OfRpc& counts)
    : mutex_(mutex), counts_(counts) {
  const std::lock_guard lock(mutex_);
  ++counts_.started;
}

CallCounter::Call::~Call() {
  if (!ended_) End(grpc::StatusCode::CANCELLED);
}

void CallCounter::Call::NoteReceived() {
  const std::lock_guard lock(mutex_);
  ++counts_.received;
}

void CallCounter::Call::NoteSent() {
  const std::lock_guard lock(mutex_);
  ++counts_.sent;
}

void CallCounter::Call::End(grpc::StatusCode code) {
  const std::lock_guard lock(mutex_);
  if (std::exchange(ended_, true)) return;
  ++counts_.by_code[static_cast<size_t>(code) % kStatusCodes];
  const std::chrono::nanoseconds took =
      std::chrono::steady_clock::now() - begin_;
  counts_.time.Observe(took.count());
}

// One call over gRPC.
class CallCounter::Interceptor final : public grpc::experimental::Interceptor {
 public:
  Interceptor(const grpc::ServerContextBase& context, std::mutex& mutex,
              RequestMetrics::OfRpc& counts)
      : context_(context), call_(mutex, counts) {}

  void Intercept(InterceptorBatchMethods* batch) override {
    const auto comes = [batch](InterceptionHookPoints point) {
      return batch->QueryInterceptionHookPoint(point);
    };
    if (comes(InterceptionHookPoints::POST_RECV_MESSAGE) &&
        batch->GetRecvMessage() != nullptr) {
      call_.NoteReceived();
    }
    if (comes(InterceptionHookPoints::PRE_SEND_MESSAGE)) call_.NoteSent();
    if (comes(InterceptionHookPoints::PRE_SEND_STATUS)) {
      // What gRPC's own services say to a caller that has gone is UNKNOWN.
      const grpc::StatusCode code = batch->GetSendStatus().error_code();
      const bool gone = code != grpc::StatusCode::OK && context_.IsCancelled();
      call_.End(gone ? grpc::StatusCode::CANCELLED : code);
    }
    batch->Proceed();
  }

 private:
  const grpc::ServerContextBase& context_;
  Call call_;
};

RequestMetrics::OfRpc& CallCounter::Find(const std::string& name,
                                         const char* type) {
  const std::lock_guard lock(mutex_);
  const auto [place, is_new] = methods_.try_emplace(name);
  if (is_new) place->second = NewMethod(name, type);
  return place->second.counts;
}

std::unique_ptr<CallCounter::Call> CallCounter::Begin(
    const std::string& service, const std::string& method) {
  return std::make_unique<Call>(
      mutex_,
      Find(WholeName(service, method), TypeName(ServerRpcInfo::Type::UNARY)));
}

class CallCounter::Factory final : public ServerInterceptorFactoryInterface {
 public:
  Factory(CallCounter& counter, const std::vector<std::string>& services)
      : counter_(counter), methods_(MethodNames(services)) {
    for (size_t i = 1; i < kRpcs; ++i) {
      const RpcName name = NameOf(static_cast<Rpc>(i));
      elsewhere_[i] = WholeName(name.service, name.method);
    }
  }

  grpc::experimental::Interceptor* CreateServerInterceptor(
      ServerRpcInfo* info) override {
    const absl::string_view name = info->method();
    for (const std::string& other : elsewhere_) {
      if (name == other) return nullptr;
    }
    return new Interceptor(
        *info->server_context(), counter_.mutex_,
        counter_.Find(methods_.contains(name) ? info->method() : kUnknown,
                      TypeName(info->type())));
  }

 private:
  CallCounter& counter_;
  const absl::flat_hash_set<std::string> methods_;
  std::array<std::string, kRpcs> elsewhere_;
};

std::unique_ptr<ServerInterceptorFactoryInterface> CallCounter::NewFactory(
    const std::vector<std::string>& services) {
  return std::make_unique<Factory>(*this, services);
}

std::vector<CallCounter::OfMethod> CallCounter::Read() const {
  std::vector<OfMethod> methods;
  const std::lock_guard lock(mutex_);
  methods.reserve(methods_.size());
  for (const auto& [name, of] : methods_) methods.push_back(of);
  return methods;
}

}  // namespace attention::server
