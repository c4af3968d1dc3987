package serve

import (
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"
)

// places is a listener with a bounded number of connections. When there are too many, an idle one
// makes room, of whom has the most; so who keeps many open keeps nobody out. The node itself, where
// the kubelet is, has a share that nobody else takes.
type places struct {
	net.Listener
	most int
	log  *slog.Logger

	mu      sync.Mutex
	open    []*place // the oldest first
	refused int      // since it was logged
	logged  time.Time
}

// place is one connection.
type place struct {
	net.Conn
	all  *places
	from string
	here bool // from this node
	busy bool // a request is answered
}

// Accept implements net.Listener.
func (p *places) Accept() (net.Conn, error) {
	for {
		c, err := p.Listener.Accept()
		if err != nil {
			return nil, err
		}
		taken, replaced := p.take(c)
		if replaced != nil {
			_ = replaced.Conn.Close() // the server learns it by reading
		}
		if taken != nil {
			return taken, nil
		}
		_ = c.Close() // there is no room
	}
}

// take gives a connection a place, maybe that of another one, which is returned.
func (p *places) take(c net.Conn) (taken, replaced *place) {
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

// room reports whether there is room for a connection, and which one has to go for it.
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

// logRefusal logs that connections are refused, now and then.
func (p *places) logRefusal(from string) {
	p.refused++
	if time.Since(p.logged) < logEvery {
		return
	}
	p.log.Warn("connections were refused: too many requests run", "address", p.Addr().String(), "from", from, "refused", p.refused, "limit", p.most)
	p.refused, p.logged = 0, time.Now()
}

// state learns from the server what a connection does.
func (p *places) state(c net.Conn, s http.ConnState) {
	taken, ok := c.(*place)
	if !ok {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	taken.busy = s == http.StateActive
}

// Close implements net.Conn, and gives the place back.
func (c *place) Close() error {
	c.all.mu.Lock()
	c.all.remove(c)
	c.all.mu.Unlock()
	return c.Conn.Close()
}
