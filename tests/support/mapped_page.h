#ifndef ATTENTION_TESTS_SUPPORT_MAPPED_PAGE_H_
#define ATTENTION_TESTS_SUPPORT_MAPPED_PAGE_H_

#include <sys/mman.h>

namespace attention::test {

/// Whether something is mapped at `page`, where a page begins.
inline bool IsMapped(void* page) {
  unsigned char resident = 0;
  return mincore(page, 1, &resident) == 0;
}

}  // namespace attention::test

#endif  // ATTENTION_TESTS_SUPPORT_MAPPED_PAGE_H_
