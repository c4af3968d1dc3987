package agent

import (
	"context"
	"encoding/json"
	"log/slog"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
	"github.com/sluice-net/sluice/plugins/follow"
)

// heartbeat knows the active reflector. The zero value knows nothing.
type heartbeat struct {
	mu     sync.Mutex
	leader *view.Reflector
	since  time.Time // since when there is none; zero when it is not known
}

// get returns the active reflector, or since when there is none.
func (h *heartbeat) get() (*view.Reflector, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leader, h.since
}

// set takes over what the key says; nil when there is none.
func (h *heartbeat) set(value []byte) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if value == nil {
		if h.leader != nil || h.since.IsZero() {
			h.since = time.Now()
		}
		h.leader = nil
		return
	}
	var l model.Leader
	_ = json.Unmarshal(value, &l) // the key alone says that a reflector writes
	since, _ := time.Parse(time.RFC3339, l.Since)
	h.leader, h.since = &view.Reflector{Identity: l.Identity, Version: l.Version, Since: since}, time.Time{}
}

// follow follows the key until ctx ends. While the store does not answer, what it had last
// stays: the status of the store reports that.
func (h *heartbeat) follow(ctx context.Context, s follow.Store, key string, log *slog.Logger) error {
	take := func(entries []model.Entry) (found bool) {
		for _, e := range entries {
			if e.Key == key {
				h.set(e.Value)
				found = true
			}
		}
		return found
	}
	return follow.Run(ctx, follow.Config{
		Store: s, Prefix: key, What: "active reflector", Log: log, Grace: -1,
		Snapshot: func(s follow.Snapshot) {
			if !take(s.Entries) {
				h.set(nil)
			}
		},
		Deliver: func(entries []model.Entry, _ int64) { take(entries) },
	})
}

// storeStatus returns how fresh the state is.
func (a *Agent) storeStatus() view.StoreStatus {
	s := a.watcher.Status()
	v := view.StoreStatus{Following: s.Following, Since: s.Since, Heard: s.Heard, Saved: s.Saved, Incomplete: s.Incomplete}
	if s.Marker != nil {
		v.Cluster = s.Marker.Cluster
	}
	if !s.Following {
		v.Error = s.LastError
	}
	v.Reflector, v.Unwritten = a.heartbeat.get()
	return v
}
