#ifndef ATTENTION_CORE_PAGE_NUMBERS_H_
#define ATTENTION_CORE_PAGE_NUMBERS_H_

#include <cstdint>
#include <functional>

/// What pages of keys and values that stay are known by
/// (KeyValueBlock::page), for who keeps copies of them elsewhere: the rows of
/// one number never change, but more of them may follow.
namespace attention {

/// Above 0, and never given a second time in this process.
uint64_t NewPageNumber();

/// Says that no problem will name the page any more: its memory is freed, or
/// gets other rows. For who has the number from NewPageNumber().
void EndPageNumber(uint64_t number);

/// Hears of every number that ends, from now on until it goes.
class PageNumberListener {
 public:
  /// `on_end` is called from any thread, from several at once too, and from
  /// within locks: it must be quick, and call nothing of the store's. None is
  /// running any more when the destructor returns.
  explicit PageNumberListener(std::function<void(uint64_t number)> on_end);
  ~PageNumberListener();
  PageNumberListener(const PageNumberListener&) = delete;
  PageNumberListener& operator=(const PageNumberListener&) = delete;

 private:
  friend void EndPageNumber(uint64_t number);

  const std::function<void(uint64_t)> on_end_;
};

}  // namespace attention

#endif  // ATTENTION_CORE_PAGE_NUMBERS_H_
