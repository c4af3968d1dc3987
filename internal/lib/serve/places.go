package serve

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// places is a listener with a bounded number of connections. When there are too many, it closes an
// idle one of the origin with the most, so no client can keep others out by opening many. A share
// is reserved for the node itself, where the kubelet runs.
type places struct {
	net.Listener
	most int
	log  *slog.Logger

	mu      sync.Mutex
	open    []*place // oldest first
	refused int      // number since the last log line
	logged  time.Time
}

// place is one connection.
type place struct {
	net.Conn
	all  *places
	from string
	here bool // from this node
	busy bool // a request is in progress
}

// Accept implements net.Listener.
func (p *places) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		taken, replaced := p.enter(c)
		if replaced != nil {
			_ = replaced.Conn.Close() // the server notices when it reads
		}
		if taken != nil {
			return taken, nil
		}
		_ = c.Close() // there is no room
	}
}

// enter adds a connection; it may have to replace another one, which it returns.
func (p *places) enter(c net.Conn) (taken, replaced *place) {
	p.mu.Lock()
	defer p.mu.Unlock()
	taken = &place{Conn: c, all: p}
	taken.from, taken.here = origin(c)
	replaced, room := p.room(taken)
	if !room {
		p.logRefusal(taken.from)
		return nil, nil
	}
	if replaced != nil {
		p.remove(replaced)
	}
	p.open = append(p.open, taken)
	return taken, replaced
}

// room reports whether there is room for a connection, and which one it must replace.
func (p *places) room(c *place) (replaced *place, ok bool) {
	count := map[string]int{}
	others, most := 0, ""
	for _, o := range p.open {
		count[o.from]++
		if !o.here {
			others++
			if count[o.from] > count[most] || most == "" {
				most = o.from
			}
		}
	}
	share := max(1, p.most/shares)
	if c.here {
		if p.Addr().Network() == "unix" {
			share = p.most
		}
		if count[c.from] < share {
			return nil, true
		}
		replaced = p.oldest(func(o *place) bool { return o.here && !o.busy })
		return replaced, replaced != nil
	}
	switch {
	case count[c.from] >= share:
		replaced = p.oldest(func(o *place) bool { return o.from == c.from && !o.busy })
	case others < p.most-share:
		return nil, true
	case count[most] > count[c.from]+1: // who has more than the new one would have makes room
		if replaced = p.oldest(func(o *place) bool { return o.from == most && !o.busy }); replaced == nil {
			replaced = p.oldest(func(o *place) bool { return o.from == most })
		}
	default:
		replaced = p.oldest(func(o *place) bool { return !o.here && !o.busy })
	}
	return replaced, replaced != nil
}

func (p *places) oldest(is func(*place) bool) *place {
	for _, o := range p.open {
		if is(o) {
			return o
		}
	}
	return nil
}

func (p *places) remove(c *place) {
	for i, o := range p.open {
		if o == c {
			p.open = append(p.open[:i], p.open[i+1:]...)
			return
		}
	}
}

// logEvery bounds how often refused connections are logged.
const logEvery = time.Minute

// logRefusal logs refused connections, at most once per logEvery.
func (p *places) logRefusal(from string) {
	p.refused++
	if time.Since(p.logged) < logEvery {
		return
	}
	p.log.Warn("connections were refused: too many requests in progress", "address", p.Addr().String(), "from", from, "refused", p.refused, "limit", p.most)
	p.refused, p.logged = 0, time.Now()
}

// state records the state of a connection, as the server reports it.
func (p *places) state(c net.Conn, s http.ConnState) {
	taken, ok := c.(*place)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	taken.busy = s == http.StateActive
}

// Close implements net.Conn, and frees the place.
func (c *place) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
