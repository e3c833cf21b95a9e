#ifndef ATTENTION_SERVER_TRANSPORT_ACCEPTOR_H_
#define ATTENTION_SERVER_TRANSPORT_ACCEPTOR_H_

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "server/base/file_descriptor.h"
#include "server/telemetry/log_limit.h"
#include "server/transport/connections.h"

namespace attention::server {

/// Accepts connections on a thread of its own. gRPC 1.51's listener stops for
/// good once accept() has failed for lack of descriptors, and counts nothing.
class Acceptor {
 public:
  using Serve = std::function<void(int socket)>;

  /// Sockets to listen on, which do not block, and who serves what connects to
  /// them: one of `serve` gets each socket that `connections` takes, and closes
  /// it some time; the others are closed at once. Each of them is called by one
  /// thread at a time, not by that which accepts, and may still be running when
  /// the acceptor is gone.
  struct Way {
    std::vector<FileDescriptor> listening;
    std::vector<Serve> serve;
  };

  Acceptor(std::vector<Way> ways, Connections& connections);
  ~Acceptor() { Stop(); }
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  /// Accepts nothing more, and closes the listening sockets. Once, or again
  /// without effect.
  void Stop();

 private:
  class Handovers;

  void Run();
  struct Listening {
    FileDescriptor socket;
    std::shared_ptr<Handovers> handovers;
  };

  /// Accepts what waits at one listening socket. False where the process or
  /// the machine has no more to open.
  bool AcceptAll(const Listening& listening);
  void Admit(FileDescriptor socket,
             const std::shared_ptr<Handovers>& handovers);
  void HandOver(FileDescriptor socket,
                const std::shared_ptr<Handovers>& handovers);
  static std::vector<Listening> Spread(std::vector<Way> ways);

  std::vector<Listening> listening_;
  Connections& connections_;
  const FileDescriptor stop_;  // an eventfd
  LogLimit refused_;
  LogLimit failed_;
  std::thread thread_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_TRANSPORT_ACCEPTOR_H_
