package session

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"time"
)

// VPP evaluates no rules for open connections, and has no request that ends one. Its command line
// can only notify an application that the other side closes; the application then closes the
// connection, or does not.

const (
	minRecheck = time.Second
	maxRecheck = time.Minute
)

// revocation tracks connections that policy no longer permits.
type revocation struct {
	due       bool                // rules were tightened, or connections remained
	addresses map[netip.Addr]bool // pod addresses to check; nil means all
	next      time.Time           // time of the next check; zero means at once
	wait      time.Duration       // interval between checks
	notified  int                 // connections whose applications were notified
}

// look notifies the applications of forbidden connections to close them, and schedules another
// check.
func (v *revocation) look(ctx context.Context, l *link, m *mirror, p *pods, log *slog.Logger) error {
	if !v.due || time.Now().Before(v.next) {
		return nil
	}
	denied, peers, err := finder{l, m, p, v.addresses}.denied(ctx)
	if err != nil && !isUnknown(err) { // a vswitch without connections does not know the command
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
	if v.notified = len(denied); v.wait == 0 {
		log.Info("notified applications to close connections that policy no longer permits", "connections", v.notified, "first", denied[0])
	}
	v.wait = min(max(minRecheck, 2*v.wait), maxRecheck)
	v.next = time.Now().Add(v.wait)
	return nil
}

// tightened makes the next Apply look for forbidden connections of the given addresses, or of all
// pods if there are none.
func (v *revocation) tightened(of ...netip.Addr) {
	all := len(of) == 0 || v.due && v.addresses == nil
	*v = revocation{due: true, addresses: v.addresses, notified: v.notified}
	if all {
		v.addresses = nil
		return
	}
	if v.addresses == nil {
		v.addresses = map[netip.Addr]bool{}
	}
	for _, a := range of {
		v.addresses[a] = true
	}
}
