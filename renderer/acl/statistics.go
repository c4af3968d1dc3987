package acl

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"strings"
	"sync"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/adapter/statsclient"
	"go.fd.io/govpp/binapi/acl"
)

// statistics reads the counters of entries from the statistics segment of VPP, which
// is shared memory: VPP is not asked. They are counted once the renderer has turned
// that on. It may be used by any goroutine.
type statistics struct {
	socket string
	log    *slog.Logger

	mu     sync.Mutex
	client *statsclient.StatsClient // nil when not connected
	at     map[uint32]uint32        // ACLs' places in the segment's directory; they never change
	told   bool                     // that there is nothing to connect to
}

// statisticsWait is how long the socket is waited for: whoever asks holds a lock.
const statisticsWait = 20 * time.Millisecond

// statisticsTries is how often a read is begun again because VPP wrote meanwhile.
const statisticsTries = 5

// reset has the segment mapped anew: VPP may be another process now.
func (s *statistics) reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		if err := s.client.Disconnect(); err != nil {
			s.log.Debug("statistics segment", "error", err)
		}
	}
	s.client, s.at = nil, nil
}

// connect maps the segment if it is not.
func (s *statistics) connect() error {
	if s.client != nil {
		return nil
	}
	c := statsclient.NewStatsClient(s.socket, statsclient.SetSocketRetryPeriod(statisticsWait/2), statsclient.SetSocketRetryTimeout(statisticsWait))
	if err := c.Connect(); err != nil {
		return fmt.Errorf("statistics segment %s: %w", s.socket, err)
	}
	s.client, s.told = c, false
	return nil
}

// counters returns how often each entry of an ACL has decided, over all threads.
func (s *statistics) counters(aclIndex uint32) ([]uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.connect()
	for range statisticsTries {
		if err != nil {
			break
		}
		var packets []uint64
		if packets, err = s.read(aclIndex); err == nil {
			return packets, packets != nil
		}
		if errors.Is(err, adapter.ErrStatsDataBusy) {
			err = nil
		}
	}
	if err != nil && !s.told {
		s.told = true
		s.log.Warn("hits of rules are not known", "error", err)
	}
	return nil, false
}

// read returns the counters of an ACL, nil when there are none.
func (s *statistics) read(aclIndex uint32) ([]uint64, error) {
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
func (s *statistics) list() error {
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

// count has VPP count what entries decide. VPP answers with the number of another
// message, which GoVPP does not look at here.
func (l *link) count(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	if _, err := acl.NewServiceClient(l.Conn).ACLStatsIntfCountersEnable(ctx, &acl.ACLStatsIntfCountersEnable{Enable: true}); err != nil {
		return fmt.Errorf("turn on counters: %w", err)
	}
	return nil
}

// startCounting has the vswitch count, once there is a new connection.
func (r *Renderer) startCounting(ctx context.Context) error {
	if r.stats == nil {
		return nil
	}
	r.stats.reset()
	return r.link.count(ctx)
}
