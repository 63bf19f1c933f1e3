// Counters of traffic: distinct 32-byte sectors of a phase and of a block in it, requests of warps, bank conflicts.
//
// A visit is one block in one phase; blocks run one after the other, so that visits never overlap and one number per
// sector tells whether this visit, and whether this phase, has counted it. Lanes of a warp run one after the other too:
// each logs its accesses, and when all 32 wait or have ended, the k-th access of a place in each lane is one request.

constexpr int kSectorBytes = 32, kBanks = 32, kBankBytes = 4;

// Of one sector: the last visits that read and wrote it, and the bytes that the phase of those has touched.
struct Sector {
  uint32_t visit[2], touched[2];
};

struct Access {
  uint64_t at;
  uint32_t line;
  int16_t position;  // of the buffer; -1: shared memory
  uint8_t bytes, write;

  bool same_place(const Access& o) const {
    return line == o.line && position == o.position && bytes == o.bytes && write == o.write;
  }
  uint64_t place() const { return (uint64_t)line << 32 | (uint64_t)(uint16_t)position << 16 | bytes << 1 | write; }
};

using Log = std::vector<Access>;

class Counts {
 public:
  std::vector<StCounts> all;  // of each phase: shared memory, then each buffer

  void start(int buffers) {
    all.clear();
    buffers_ = buffers;
    visit_ = phase_first_ = 0;
    phase_ = -1;
  }

  // A block begins a phase.
  void visit(int phase) {
    ++visit_;
    if (phase <= phase_) return;
    phase_ = phase;
    phase_first_ = visit_;
    for (int position = -1; position < buffers_; ++position) {
      StCounts c{};
      c.phase = phase;
      c.position = position;
      all.push_back(c);
    }
  }

  void touch(Sector* sectors, int position, uint64_t at, int bytes, int write) {
    StTraffic& traffic = counts(position).traffic[write];
    for (uint64_t end = at + bytes; at < end;) {
      uint64_t number = at / kSectorBytes, stop = std::min(end, (number + 1) * kSectorBytes);
      uint32_t mask = (uint32_t)((1ull << (stop - number * kSectorBytes)) - (1ull << (at % kSectorBytes)));
      Sector& s = sectors[number];
      if (s.visit[write] != visit_) {
        ++traffic.block_sectors;
        if (s.visit[write] < phase_first_) {
          ++traffic.sectors;
          s.touched[write] = 0;
        }
        s.visit[write] = visit_;
      }
      traffic.bytes += __builtin_popcount(mask & ~s.touched[write]);
      s.touched[write] |= mask;
      at = stop;
    }
  }

  // All lanes of a warp wait or have ended: their logs, from lane 0 on, become requests.
  void merge(Log* lanes) {
    int active[32], n = 0;
    for (int l = 0; l < 32; ++l)
      if (!lanes[l].empty()) active[n++] = l;
    if (!n) return;
    size_t together = 0, longest = 0, shortest = ~(size_t)0;
    for (int i = 0; i < n; ++i) {
      longest = std::max(longest, lanes[active[i]].size());
      shortest = std::min(shortest, lanes[active[i]].size());
    }
    Access column[32];
    for (; together < shortest; ++together) {
      const Access& first = lanes[active[0]][together];
      bool same = true;
      for (int i = 0; i < n; ++i) {
        column[i] = lanes[active[i]][together];
        same = same && column[i].same_place(first);
      }
      if (!same) break;
      request(column, active, n);
    }
    if (together < longest) merge_apart(lanes, active, n, together);
    for (int i = 0; i < n; ++i) {
      lanes[active[i]].clear();
      spare_.push_back(std::move(lanes[active[i]]));
      lanes[active[i]] = Log();
    }
  }

  // Logs given back last are used first: whatever the grid, few of them are ever filled at a time.
  void add(Log& log, const Access& access) {
    if (!log.capacity() && !spare_.empty()) {
      log.swap(spare_.back());
      spare_.pop_back();
    }
    log.push_back(access);
  }

 private:
  struct Item {
    uint64_t place;
    uint32_t turn;
    int lane;
    const Access* access;
  };
  std::vector<Item> items_;
  std::vector<Log> spare_;
  uint32_t visit_ = 0, phase_first_ = 0;
  int phase_ = -1, buffers_ = 0;

  StCounts& counts(int position) { return all[(size_t)phase_ * (buffers_ + 1) + position + 1]; }

  // Lanes that have taken different ways, from entry `from` of their logs on.
  void merge_apart(Log* lanes, const int* active, int n, size_t from) {
    items_.clear();
    for (int i = 0; i < n; ++i) {
      std::map<uint64_t, uint32_t> turns;
      const Log& log = lanes[active[i]];
      for (size_t k = from; k < log.size(); ++k)
        items_.push_back({log[k].place(), turns[log[k].place()]++, active[i], &log[k]});
    }
    std::sort(items_.begin(), items_.end(), [](const Item& a, const Item& b) {
      return std::tie(a.place, a.turn, a.lane) < std::tie(b.place, b.turn, b.lane);
    });
    Access column[32];
    int numbers[32];
    for (size_t k = 0; k < items_.size();) {
      int m = 0;
      const Item& first = items_[k];
      for (; k < items_.size() && items_[k].place == first.place && items_[k].turn == first.turn; ++k, ++m) {
        column[m] = *items_[k].access;
        numbers[m] = items_[k].lane;
      }
      request(column, numbers, m);
    }
  }

  void request(const Access* column, const int* lanes, int n) {
    StTraffic& traffic = counts(column[0].position).traffic[column[0].write];
    ++traffic.requests;
    if (column[0].position < 0)
      counts(-1).conflicts += conflicts(column, lanes, n);
    else
      measure(column, n, traffic);
  }

  // Distinct sectors and bytes of one request. Accesses of one size are equal or apart.
  static void measure(const Access* column, int n, StTraffic& traffic) {
    uint64_t sectors[64], next = 0;
    int m = 0;
    for (int i = 0; i < n; ++i) {
      uint64_t at = column[i].at, bytes = column[i].bytes;
      bool fresh = at >= next;
      for (int j = 0; !fresh; ++j) {
        if (j == i) fresh = true;
        else if (column[j].at == at) break;
      }
      if (fresh) traffic.request_bytes += (int64_t)bytes;
      next = std::max(next, at + bytes);
      for (uint64_t s = at / kSectorBytes; s <= (at + bytes - 1) / kSectorBytes; ++s)
        if (!m || (s != sectors[m - 1] && std::find(sectors, sectors + m, s) == sectors + m)) sectors[m++] = s;
    }
    traffic.request_sectors += m;
  }

  // Wavefronts beyond the ideal. Accesses of 8 (16) bytes are served for half (a quarter) of the warp at a time; in each
  // part a bank gives one word per wavefront, to any number of lanes.
  static int conflicts(const Access* column, const int* lanes, int n) {
    int words = std::max(1, column[0].bytes / kBankBytes), part = 32 / words, extra = 0;
    for (int i = 0; i < n;) {
      int which = lanes[i] / part, m = 0;
      uint64_t seen[64];
      uint8_t load[kBanks] = {}, most = 0;
      for (; i < n && lanes[i] / part == which; ++i)
        for (int w = 0; w < words; ++w) {
          uint64_t word = column[i].at / kBankBytes + w;
          if (std::find(seen, seen + m, word) != seen + m) continue;
          seen[m++] = word;
          most = std::max(most, ++load[word % kBanks]);
        }
      extra += most - 1;
    }
    return extra;
  }
};
