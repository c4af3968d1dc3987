package xdp

import (
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/internal/pins"
)

// learning tracks the endpoints at which mid-stream TCP packets still create a tracked connection:
// for a period after the first attach, where connections may be older than the connection table.
type learning struct {
	period   time.Duration        // zero: never
	older    func(id uint32) bool // whether an endpoint may have such connections; nil: each
	until    map[uint32]time.Time
	onChange func() // called by another goroutine when a period ends; may be nil
	timer    *time.Timer
}

// learns reports whether an endpoint still learns. For a new endpoint it starts the period, and a
// timer that calls onChange at its end.
func (l *learning) learns(id uint32) bool {
	if l.period <= 0 || l.older != nil && !l.older(id) {
		return false
	}
	until, known := l.until[id]
	if !known {
		until = time.Now().Add(l.period)
		l.until[id] = until
		l.stop()
		l.timer = time.AfterFunc(l.period, func() {
			if l.onChange != nil {
				l.onChange()
			}
		})
	}
	return time.Now().Before(until)
}

// forget forgets an endpoint that is detached.
func (l *learning) forget(id uint32) { delete(l.until, id) }

// stop stops the timer.
func (l *learning) stop() {
	if l.timer != nil {
		l.timer.Stop()
	}
}

// elder is a dataplane that knows which endpoints may have connections that its connection table
// does not have, because they are older.
type elder interface{ older(id uint32) bool }

// elders are the interfaces that were up, and not blocked, when the connection table was created.
// An interface that comes later, or that was blocked from its beginning, has no connection that was
// not judged.
type elders map[uint32]bool

// findElders finds them, if this process created the connection table.
func findElders(folder *pins.Folder, blocked func() ([]uint32, error)) (elders, error) {
	out := elders{}
	if !folder.Made(bpf.SluiceMapConns) {
		return out, nil
	}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, fmt.Errorf("interfaces with older connections: %w", err)
	}
	for _, l := range links {
		out[uint32(l.Attrs().Index)] = l.Attrs().Flags&net.FlagUp != 0
	}
	if blocked == nil {
		return out, nil
	}
	ids, err := blocked()
	for _, id := range ids {
		delete(out, id)
	}
	return out, err
}
