package session

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// VPP asks no rule about a connection that is open, and has no request that ends one. What its
// command line has is that of an application being told that the other side closes; it ends the
// connection then, or not.

const (
	minRecheck = time.Second
	maxRecheck = time.Minute
)

// revocation is what is known of connections that policy no longer permits.
type revocation struct {
	due  bool                // rules were tightened, or connections were left: look
	of   map[netip.Addr]bool // at connections of these addresses of pods; nil is all
	at   time.Time           // when; zero is at once
	wait time.Duration       // from one look to the next
	left int                 // connections whose applications were told
}

// look tells the applications of connections that rules no longer permit to close them, and has it
// looked again after a while whether they did.
func (v *revocation) look(ctx context.Context, l *link, m *mirror, p *pods, log *slog.Logger) error {
	if !v.due || time.Now().Before(v.at) {
		return nil
	}
	denied, peers, err := finder{l, m, p, v.of}.denied(ctx)
	if err != nil && !isUnknown(err) { // a vswitch without connections knows no such command
		return err
	}
	for _, c := range slices.Concat(denied, peers) {
		if err := l.end(ctx, c); err != nil {
			return err
		}
	}
	if len(denied) == 0 {
		*v = revocation{}
		return nil
	}
	if v.left = len(denied); v.wait == 0 {
		log.Info("connections are no longer permitted, their applications are told to close them", "connections", v.left, "first", denied[0])
	}
	v.wait = min(max(minRecheck, 2*v.wait), maxRecheck)
	v.at = time.Now().Add(v.wait)
	return nil
}

// tightened has the next Commit look for connections of addresses that rules do not permit any
// more, and for those of all pods when there are none.
func (v *revocation) tightened(of ...netip.Addr) {
	all := len(of) == 0 || v.due && v.of == nil
	*v = revocation{due: true, of: v.of, left: v.left}
	if all {
		v.of = nil
		return
	}
	if v.of == nil {
		v.of = map[netip.Addr]bool{}
	}
	for _, a := range of {
		v.of[a] = true
	}
}
