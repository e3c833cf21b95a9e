#ifndef ATTENTION_SERVER_SCHEDULING_FAIR_QUEUE_H_
#define ATTENTION_SERVER_SCHEDULING_FAIR_QUEUE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>

namespace attention::server {

class QueuedWork;

/// The order in which requests get their turns: fair shares in steps. Parties
/// (callers) share the workers' time equally, a party's connections share its
/// part, and of one connection the requests of about one cost are in order of
/// arrival, while small and large ones share what it has. So neither many
/// connections nor many or large requests gain anything.
///
/// Each step is a self-clocked fair queue (S. J. Golestani: "A self-clocked
/// fair queueing scheme for broadband applications", INFOCOM 1994; in steps: J.
/// C. R. Bennett, H. Zhang: "Hierarchical packet fair queueing algorithms",
/// SIGCOMM 1996). Next is what would end first if all were served at once, and
/// of equals what came first. Virtual time follows what was served, as
/// measured, so that whoever comes anew begins beside those who stay, neither
/// before nor behind them. What took longer than estimated is paid for by the
/// shares that it was of.
///
/// Costs are nanoseconds of one thread. Its user keeps threads apart.
class FairQueue {
 public:
  /// Costs of one class are within a factor of eight.
  static constexpr int kClasses = 22;
  static int ClassOf(double cost);

  struct Item {
    std::shared_ptr<QueuedWork> work;
    double cost = 0;  // as estimated
    uint64_t arrival = 0;
  };
  struct Path {
    std::string party;
    std::string connection;
  };
  /// A party, one of its connections, or that connection's requests of one
  /// class. Valid while something of it waits or runs.
  class Share;
  /// What has its turn. It ends with End().
  struct Taken {
    Item item;
    Share* share = nullptr;
  };

  /// Levels of shares below the whole: party, connection, class.
  static constexpr size_t kLevels = 3;
  /// Of the time of what runs: what it had itself, and what it gave to others,
  /// by the level at which their shares part from its own.
  struct Given {
    double own = 0;
    std::array<double, kLevels> to{};
  };

  FairQueue();
  ~FairQueue();

  /// `work` waits for its turn. What is returned is for Remove(). Where it
  /// throws std::bad_alloc, nothing waits more than before.
  Share* Add(const Path& path, std::shared_ptr<QueuedWork> work, double cost);
  /// The one whose turn it is; there must be one.
  Taken Take();
  /// One that may run within what runs in `beside`: it costs `most` or less,
  /// and its share, of those that wait with such, has had no more than that
  /// one. `level` is where their shares part. Nothing: no item.
  Taken TakeWithin(const Share& beside, double most, const Given& given,
                   size_t& level);
  /// What was taken has ended, and took so much.
  void End(const Taken& taken, double measured);
  /// It was waiting in `share`, and does not any more.
  std::shared_ptr<QueuedWork> Remove(Share* share, const QueuedWork* work);

  bool empty() const;
  /// Of all that waits.
  double cost() const;
  /// The lowest class of what waits; kClasses where nothing does.
  int lowest_class() const;
  /// Cost of what waits and would have its turn before such a one.
  double CostBefore(const Path& path, double cost) const;

 private:
  void Update(Share* leaf);
  void ForgetIdleShares();
  Taken TakeFrom(Share* leaf);
  void NoteGone(Share* leaf, double cost);

  std::unique_ptr<Share> all_;
  uint64_t arrivals_ = 0;
  size_t active_ = 0;  // waits or runs
  size_t added_ = 0;   // since idle shares were forgotten
  std::array<size_t, kClasses> waiting_of_class_{};
};

}  // namespace attention::server

#endif  // ATTENTION_SERVER_SCHEDULING_FAIR_QUEUE_H_
