#ifndef ATTENTION_SERVER_SCHEDULING_SEQUENCE_ORDER_H_
#define ATTENTION_SERVER_SCHEDULING_SEQUENCE_ORDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace attention::server {

/// What a request does with sequences.
struct SequenceStep {
  std::vector<std::string> layers;  // what it reads: a name for each layer
  bool appends = false;             // to all of them, too
};

/// The requests of one stream that name sequences: those that append wait for
/// those before them, and those behind wait for them, where both are about one
/// layer of a sequence. Others run beside each other. Not safe for several
/// threads at once.
class SequenceOrder {
 public:
  /// A request that came behind all others so far. True where it may begin.
  /// Where it throws std::bad_alloc, Remove() is to follow.
  bool Add(int64_t request, SequenceStep step);

  /// A request has ended. Gives those that may begin now, in their order.
  /// Nothing where it was never added.
  std::vector<int64_t> Remove(int64_t request);

 private:
  struct Waiter {
    int64_t request;
    bool appends;
    bool has_turn;
  };
  struct Request {
    SequenceStep step;
    size_t turns = 0;  // layers in which it may go
  };

  // Lets those at the front of a layer's queue go; gives those whose last turn
  // that was.
  void GiveTurns(std::vector<Waiter>& queue, std::vector<int64_t>& begin);

  std::map<int64_t, Request> requests_;
  // One message names up to ten thousand layers, most with one waiter: a
  // deque would take half a kilobyte for each.
  std::map<std::string, std::vector<Waiter>> layers_;
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_SEQUENCE_ORDER_H_
