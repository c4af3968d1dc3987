package counters

import (
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
)

// Statistics reads packet counters from VPP's statistics segment. The segment is shared memory, so
// reading it makes no calls. VPP counts once the renderer has enabled counters. Any goroutine may
// use it.
type Statistics struct {
	socket string
	log    *slog.Logger

	mu     sync.Mutex
	client *statsclient.StatsClient // nil when not connected
	at     map[uint32]uint32        // index of each ACL in the segment's directory; never changes
	heapAt []uint32                 // indexes of heapEntries
	logged bool                     // a failure to read the segment was logged
}

// statisticsWait is the timeout for connecting to the socket. It is short because callers hold a
// lock.
const statisticsWait = 20 * time.Millisecond

// statisticsTries is how often a read is restarted because VPP wrote at the same time.
const statisticsTries = 5

// NewStatistics returns the statistics of the VPP with a socket. It connects on first use.
func NewStatistics(socket string, log *slog.Logger) *Statistics {
	return &Statistics{socket: socket, log: log}
}

// Reset maps the segment again: VPP may be another process now.
func (s *Statistics) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		if err := s.client.Disconnect(); err != nil {
			s.log.Debug("could not disconnect from vpp's statistics segment", "error", err)
		}
	}
	s.client, s.at, s.heapAt = nil, nil, nil
}

// connect maps the segment if it is not mapped.
func (s *Statistics) connect() error {
	if s.client != nil {
		return nil
	}
	c := statsclient.NewStatsClient(s.socket, statsclient.SetSocketRetryPeriod(statisticsWait/2), statsclient.SetSocketRetryTimeout(statisticsWait))
	if err := c.Connect(); err != nil {
		return fmt.Errorf("statistics segment %s: %w", s.socket, err)
	}
	s.client, s.logged = c, false
	return nil
}

// Counters returns the packet counter of each entry of an ACL, summed over all threads.
func (s *Statistics) Counters(aclIndex uint32) ([]uint64, bool) {
	packets, ok := consistent(s, func() ([]uint64, error) { return s.read(aclIndex) })
	return packets, ok && packets != nil
}

// Lengths returns how many counters the index of each ACL has, of those that were ever used.
func (s *Statistics) Lengths() map[uint32]int {
	out, _ := consistent(s, func() (map[uint32]int, error) {
		if err := s.list(); err != nil {
			return nil, err
		}
		out := make(map[uint32]int, len(s.at))
		for index := range s.at {
			counts, err := s.read(index)
			if err != nil {
				return nil, err
			}
			out[index] = len(counts)
		}
		return out, nil
	})
	return out
}

// consistent calls look while VPP does not write to the segment. ok is false when nothing could be
// read; the failure is logged once.
func consistent[T any](s *Statistics, look func() (T, error)) (found T, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.connect()
	for range statisticsTries {
		if err != nil {
			break
		}
		if found, err = look(); err == nil {
			return found, true
		}
		if errors.Is(err, adapter.ErrStatsDataBusy) {
			err = nil
		}
	}
	if err != nil && !s.logged {
		s.logged = true
		s.log.Warn("could not read vpp's statistics segment; packet counters of rules and the size of vpp's heap are unknown", "error", err)
	}
	return found, false
}

// read returns the counters of an ACL, or nil when there are none.
func (s *Statistics) read(aclIndex uint32) ([]uint64, error) {
	place, ok := s.at[aclIndex]
	if !ok {
		if err := s.list(); err != nil {
			return nil, err
		}
		if place, ok = s.at[aclIndex]; !ok {
			return nil, nil
		}
	}
	dir, err := s.client.PrepareDirOnIndex(place)
	if err != nil {
		return nil, err
	}
	for _, e := range dir.Entries {
		if threads, ok := e.Data.(adapter.CombinedCounterStat); ok && string(e.Name) == statisticsName(aclIndex) {
			return sumThreads(threads), nil
		}
	}
	return nil, nil
}

// list finds the directory indexes of all ACLs.
func (s *Statistics) list() error {
	found, err := s.client.ListStats("^/acl/[0-9]+/matches$")
	if err != nil {
		return err
	}
	s.at = make(map[uint32]uint32, len(found))
	for _, f := range found {
		number, _, _ := strings.Cut(strings.TrimPrefix(string(f.Name), "/acl/"), "/")
		if n, err := strconv.ParseUint(number, 10, 32); err == nil {
			s.at[uint32(n)] = f.Index
		}
	}
	return nil
}

func statisticsName(aclIndex uint32) string { return fmt.Sprintf("/acl/%d/matches", aclIndex) }

// sumThreads sums packets by entry.
func sumThreads(threads adapter.CombinedCounterStat) []uint64 {
	var out []uint64
	for _, counts := range threads {
		for i, c := range counts {
			if i == len(out) {
				out = append(out, 0)
			}
			out[i] += c.Packets()
		}
	}
	return out
}

// heapEntries matches the directory entries about memory: the sizes of the heaps, the heartbeat,
// which counts updates of the figures, and the start time of VPP.
const heapEntries = "^/(mem/main heap|" + segmentHeap + "|sys/heartbeat|sys/boottime)$"

// segmentHeap is the directory entry for the statistics segment itself.
const segmentHeap = "mem/stat segment"

// Heap returns VPP's figures about its main heap, or false when they are unknown.
func (s *Statistics) Heap() (u Usage, ok bool) {
	u, ok = consistent(s, s.readHeap)
	return u, ok && u.Total > 0
}

func (s *Statistics) readHeap() (u Usage, err error) {
	if s.heapAt == nil {
		found, err := s.client.ListStats(heapEntries)
		if err != nil {
			return u, err
		}
		for _, f := range found {
			s.heapAt = append(s.heapAt, f.Index)
		}
	}
	dir, err := s.client.PrepareDirOnIndex(s.heapAt...)
	if err != nil {
		return u, err
	}
	for _, e := range dir.Entries {
		switch data := e.Data.(type) {
		case adapter.SimpleCounterStat:
			switch {
			case len(data) == 0 || len(data[0]) < 2:
			case string(e.Name) == "/"+segmentHeap:
				u.Segment, u.SegmentUsed = uint64(data[0][0]), uint64(data[0][1])
			default:
				u.Total, u.Used = uint64(data[0][0]), uint64(data[0][1])
			}
		case adapter.ScalarStat:
			if string(e.Name) == "/sys/heartbeat" {
				u.Beat = float64(data)
			} else {
				u.Boot = float64(data)
			}
		}
	}
	return u, nil
}

// Usage is the use of VPP's main heap and of its statistics segment, in bytes.
type Usage struct {
	Total, Used          uint64
	Segment, SegmentUsed uint64  // zero when not reported
	Beat                 float64 // incremented with every update of the figures; every 10 s by default
	Boot                 float64 // start time of this VPP
}
