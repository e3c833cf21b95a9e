#include "server/scheduling/fair_queue.h"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace attention::server {
namespace {

// Shares that nobody waits in, kept so that who has had his part is known.
constexpr size_t kMostIdleShares = 4096;

}  // namespace

class FairQueue::Share {
 public:
  Share(Share* of, int of_class) : parent(of), cost_class(of_class) {}

  // In the order in which the next of each has its turn.
  struct ByTag {
    bool operator()(const Share* a, const Share* b) const {
      return a->tag != b->tag ? a->tag < b->tag : a->arrival < b->arrival;
    }
  };

  bool is_leaf() const { return cost_class >= 0; }
  bool is_idle() const { return !waits && running == 0; }
  // What comes next of it; it waits.
  const Item& Next() const {
    return is_leaf() ? items.front() : (*waiting.begin())->Next();
  }

  Share* Find(const std::string& name) const {
    const auto found = parts.find(name);
    return found == parts.end() ? nullptr : found->second.get();
  }
  // The part of this name, made where it is not there.
  Share* Get(const std::string& name, int of_class) {
    if (Share* const part = Find(name)) return part;
    return parts.emplace(name, std::make_unique<Share>(this, of_class))
        .first->second.get();
  }
  // The first that costs no more and comes from this share, by its order.
  Share* FirstUpTo(double most) {
    if (is_leaf()) return items.front().cost <= most ? this : nullptr;
    for (Share* part : waiting) {
      if (Share* const leaf = part->FirstUpTo(most)) return leaf;
    }
    return nullptr;
  }
  // What is idle and owes nothing begins anew where it would go on. Counts
  // what stays.
  size_t Forget(bool debtors_too) {
    size_t kept = 0;
    for (auto part = parts.begin(); part != parts.end();) {
      Share& of = *part->second;
      kept += of.Forget(debtors_too);
      const bool gone = of.is_idle() && of.parts.empty() &&
                        (debtors_too || of.start <= virtual_time);
      part = gone ? parts.erase(part) : std::next(part);
      kept += gone ? 0 : 1;
    }
    return kept;
  }

  Share* const parent;
  const int cost_class;  // of a leaf; else -1
  std::map<std::string, std::unique_ptr<Share>> parts;
  std::set<Share*, ByTag> waiting;  // those parts where something waits
  std::deque<Item> items;           // of a leaf
  double cost = 0;                  // of what waits
  double virtual_time = 0;          // of its parts

  // In the parent's virtual time: what it has had, and what runs as estimated.
  double start = 0;
  double in_service = 0;  // of `start`: what runs
  double began = 0;       // to wait, last
  int running = 0;
  // Its place in the parent's `waiting`: when the next would end.
  bool waits = false;
  double tag = 0;
  uint64_t arrival = 0;
};

namespace {

std::string NameOf(int cost_class) { return std::to_string(cost_class); }

}  // namespace

int FairQueue::ClassOf(double cost) {
  const auto width =
      static_cast<int>(std::bit_width(static_cast<uint64_t>(cost)));
  return std::min(width / 3, kClasses - 1);
}

FairQueue::FairQueue() : all_(std::make_unique<Share>(nullptr, -1)) {}
FairQueue::~FairQueue() = default;

FairQueue::Share* FairQueue::Add(const Path& path,
                                 std::shared_ptr<QueuedWork> work,
                                 double cost) {
  ForgetIdleShares();
  const int cost_class = ClassOf(cost);
  Share* const leaf = all_->Get(path.party, -1)
                          ->Get(path.connection, -1)
                          ->Get(NameOf(cost_class), cost_class);
  leaf->items.push_back({std::move(work), cost, ++arrivals_});
  for (Share* share = leaf; share != nullptr; share = share->parent) {
    share->cost += cost;
  }
  ++active_;
  ++waiting_of_class_[static_cast<size_t>(cost_class)];
  try {
    Update(leaf);
  } catch (const std::bad_alloc&) {
    leaf->items.pop_back();
    --active_;
    NoteGone(leaf, cost);
    throw;
  }
  return leaf;
}

// After a change of what waits in it, or of what its shares have had. It takes
// memory for shares in which something begins to wait.
void FairQueue::Update(Share* leaf) {
  for (Share* share = leaf; share->parent != nullptr; share = share->parent) {
    Share& parent = *share->parent;
    decltype(parent.waiting)::node_type place;
    if (share->waits) place = parent.waiting.extract(share);
    const bool waits =
        share->is_leaf() ? !share->items.empty() : !share->waiting.empty();
    if (waits && !share->waits) {
      share->began = parent.virtual_time;
      share->start = std::max(share->start, share->began);
    }
    share->waits = waits;
    if (!waits) continue;
    const Item& next = share->Next();
    share->tag = share->start + next.cost;
    share->arrival = next.arrival;
    if (place.empty()) {
      parent.waiting.insert(share);
    } else {
      parent.waiting.insert(std::move(place));
    }
  }
}

FairQueue::Taken FairQueue::Take() {
  Share* share = all_.get();
  while (!share->is_leaf()) share = *share->waiting.begin();
  return TakeFrom(share);
}

FairQueue::Taken FairQueue::TakeFrom(Share* leaf) {
  Taken taken = {std::move(leaf->items.front()), leaf};
  leaf->items.pop_front();
  for (Share* share = leaf; share != nullptr; share = share->parent) {
    share->start += taken.item.cost;
    share->in_service += taken.item.cost;
    ++share->running;
  }
  NoteGone(leaf, taken.item.cost);
  return taken;
}

// One that waited in it does not any more.
void FairQueue::NoteGone(Share* leaf, double cost) {
  --waiting_of_class_[static_cast<size_t>(leaf->cost_class)];
  Update(leaf);
  for (Share* share = leaf; share != nullptr; share = share->parent) {
    // Without what rounding left.
    share->cost = share->waits || share->parent == nullptr
                      ? std::max(share->cost - cost, 0.0)
                      : 0.0;
  }
}

FairQueue::Taken FairQueue::TakeWithin(const Share& beside, double most,
                                       const Given& given, size_t& level) {
  std::array<const Share*, kLevels> path{};
  const Share* of = &beside;
  for (size_t i = kLevels; i-- > 0; of = of->parent) path[i] = of;
  // What the share at this level has had of that time.
  double had = given.own;
  for (const double to : given.to) had += to;
  for (level = 0; level < kLevels; ++level) {
    had -= given.to[level];
    Share* first = nullptr;
    double shares = 0;
    for (Share* other : path[level]->parent->waiting) {
      if (other == path[level]) continue;
      Share* const leaf = other->FirstUpTo(most);
      if (leaf == nullptr) continue;
      if (first == nullptr) first = leaf;
      ++shares;
    }
    if (first != nullptr && given.to[level] <= shares * had) {
      return TakeFrom(first);
    }
  }
  return {};
}

void FairQueue::End(const Taken& taken, double measured) {
  --active_;
  const double more = measured - taken.item.cost;
  for (Share* share = taken.share; share->parent != nullptr;
       share = share->parent) {
    double& now = share->parent->virtual_time;
    --share->running;
    share->in_service =
        share->running == 0 ? 0 : share->in_service - taken.item.cost;
    // What is given back is no credit against those who waited before it did.
    share->start = std::max(share->start + more, share->began);
    now = std::max(now, share->start - share->in_service);
  }
  Update(taken.share);
}

std::shared_ptr<QueuedWork> FairQueue::Remove(Share* share,
                                              const QueuedWork* work) {
  const auto item =
      std::find_if(share->items.begin(), share->items.end(),
                   [work](const Item& i) { return i.work.get() == work; });
  std::shared_ptr<QueuedWork> removed = std::move(item->work);
  const double cost = item->cost;
  share->items.erase(item);
  --active_;
  NoteGone(share, cost);
  return removed;
}

bool FairQueue::empty() const { return all_->waiting.empty(); }

double FairQueue::cost() const { return all_->cost; }

int FairQueue::lowest_class() const {
  const auto lowest =
      std::find_if(waiting_of_class_.begin(), waiting_of_class_.end(),
                   [](size_t count) { return count > 0; });
  return static_cast<int>(lowest - waiting_of_class_.begin());
}

double FairQueue::CostBefore(const Path& path, double cost) const {
  std::array<const Share*, kLevels + 1> shares{};
  shares[0] = all_.get();
  const std::string names[] = {path.party, path.connection,
                               NameOf(ClassOf(cost))};
  for (size_t i = 0; i < kLevels && shares[i] != nullptr; ++i) {
    shares[i + 1] = shares[i]->Find(names[i]);
  }
  double before = shares[kLevels] == nullptr ? 0 : shares[kLevels]->cost;
  for (size_t level = kLevels; level > 0; --level) {
    const Share* const own = shares[level];
    const Share* const all = shares[level - 1];
    if (all == nullptr) continue;
    // Others have as much meanwhile, and what they are behind by.
    const double ahead =
        own == nullptr ? 0 : std::max(own->start - all->virtual_time, 0.0);
    const double part = before + cost + ahead;
    for (const Share* other : all->waiting) {
      if (other != own) before += std::min(other->cost, part);
    }
  }
  return before;
}

void FairQueue::ForgetIdleShares() {
  if (++added_ <= kMostIdleShares + active_) return;
  added_ = 0;
  const size_t kept = all_->Forget(/*debtors_too=*/false);
  if (kept > kMostIdleShares + kLevels * active_) {
    all_->Forget(/*debtors_too=*/true);
  }
}

}  // namespace attention::server
