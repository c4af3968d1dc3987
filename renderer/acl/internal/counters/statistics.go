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

// Statistics reads the counters of entries from the statistics segment of VPP, which
// is shared memory: VPP is not asked. They are counted once the renderer has turned
// that on. It may be used by any goroutine.
type Statistics struct {
	socket string
	log    *slog.Logger

	mu     sync.Mutex
	client *statsclient.StatsClient // nil when not connected
	at     map[uint32]uint32        // ACLs' places in the segment's directory; they never change
	heapAt []uint32                 // places of heapEntries
	logged bool                     // that the segment cannot be read
}

// statisticsWait is how long the socket is waited for: whoever asks holds a lock.
const statisticsWait = 20 * time.Millisecond

// statisticsTries is how often a read is begun again because VPP wrote meanwhile.
const statisticsTries = 5

// NewStatistics returns the statistics of the VPP with a socket. It connects when it is asked.
func NewStatistics(socket string, log *slog.Logger) *Statistics {
	return &Statistics{socket: socket, log: log}
}

// Reset has the segment mapped anew: VPP may be another process now.
func (s *Statistics) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		if err := s.client.Disconnect(); err != nil {
			s.log.Debug("statistics segment", "error", err)
		}
	}
	s.client, s.at, s.heapAt = nil, nil, nil
}

// connect maps the segment if it is not.
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

// Counters returns how often each entry of an ACL has decided, over all threads.
func (s *Statistics) Counters(aclIndex uint32) ([]uint64, bool) {
	packets, ok := consistent(s, func() ([]uint64, error) { return s.read(aclIndex) })
	return packets, ok && packets != nil
}

// consistent returns what a look at the segment finds while VPP does not write. It is false when
// nothing could be read, which is logged once.
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

// read returns the counters of an ACL, nil when there are none.
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

// list finds the places of all ACLs.
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

// sumThreads adds up packets by entry.
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

// The entries of the directory that say how much memory VPP has: its heaps, how often figures
// were made, and when it was started.
const heapEntries = "^/(mem/main heap|" + segmentHeap + "|sys/heartbeat|sys/boottime)$"

// segmentHeap is the entry about the statistics segment itself.
const segmentHeap = "mem/stat segment"

// Heap reads what VPP says of its main heap; false when that is not known.
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

// Usage is what VPP says of its main heap, and of its statistics segment, in bytes.
type Usage struct {
	Total, Used          uint64
	Segment, SegmentUsed uint64  // zero when it does not say it
	Beat                 float64 // counts up with every figure; VPP makes one every 10 s, unless configured otherwise
	Boot                 float64 // when this VPP started
}
