package acl

import (
	"context"
	"errors"
	"fmt"
	"strings"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// Bound is what a Commit left at an interface.
type Bound struct {
	Pod    api.PodID // whose rules it has; the zero value when it is blocked
	Reason string    // why it is blocked; empty when it has the rules of its pod
}

// Ask has the next Commit read all interfaces, and calls OnChange, so that there is one. Bound takes
// what it returns. Any goroutine may call it.
func (r *Renderer) Ask() (ticket uint64) {
	ticket = r.asks.Add(1)
	r.InterfacesChanged()
	return ticket
}

// Bound returns what a Commit left at an interface that has read the interfaces since Ask; false
// when there was none, or it is not known as a pod's. Any goroutine may call it; it waits for no
// Commit.
func (r *Renderer) Bound(name string, ticket uint64) (Bound, bool) {
	s := r.published.Load()
	b, ok := s.bound[name]
	return b, ok && s.answered >= ticket
}

// endpoints returns what the interfaces of pods have.
func (w *wanted) endpoints() map[string]Bound {
	out := make(map[string]Bound, len(w.pods)+len(w.held))
	for _, n := range w.m.ifs {
		pod, isPods := w.pods[n.index]
		t := w.tables[n.index]
		switch {
		case w.held[n.index]:
			out[n.name] = Bound{Reason: "its pod is not known yet"}
		case isPods && (!w.isBound(n) || t != nil && w.tooBig[t.Digest]):
			out[n.name] = Bound{Reason: "the rules of its pod are not in force"}
		case isPods:
			out[n.name] = Bound{Pod: pod}
		}
	}
	return out
}

// errReplaced is returned for an interface whose index another one has now.
var errReplaced = errors.New("it is another one now")

// isBound reports whether an interface has what it must have.
func (w *wanted) isBound(n *netif) bool { return w.m.with(n, w.ours(n)).equal(n.bound) }

// raise sets up the interfaces that a CNI plugin made and left down, once they have what they must
// have.
func (w *wanted) raise(ctx context.Context) error {
	for _, n := range w.m.ifs {
		_, isPods := w.pods[n.index]
		if !n.down || !strings.HasPrefix(n.name, vpp.CNIPrefix) || !isPods && !w.held[n.index] || !w.isBound(n) {
			continue
		}
		if err := w.r.link.raise(ctx, n); err != nil {
			return err
		}
		n.down = false
	}
	return nil
}

// raise sets an interface up if it is the one that was read, and not another one with its index.
func (l *link) raise(ctx context.Context, n *netif) error {
	ctx, cancel := context.WithTimeout(ctx, l.Timeout)
	defer cancel()
	client := interfaces.NewServiceClient(vpp.Streams{Connection: l.Conn})
	index := interface_types.InterfaceIndex(n.index)
	now, err := vpp.Drain[*interfaces.SwInterfaceDetails](client.SwInterfaceDump(ctx, &interfaces.SwInterfaceDump{SwIfIndex: index}))
	if err == nil && (len(now) != 1 || now[0].InterfaceName != n.name || now[0].Tag != n.tag) {
		err = errReplaced
	}
	if err == nil {
		_, err = client.SwInterfaceSetFlags(ctx, &interfaces.SwInterfaceSetFlags{SwIfIndex: index, Flags: interface_types.IF_STATUS_API_FLAG_ADMIN_UP})
	}
	if err != nil {
		return fmt.Errorf("set interface %s up: %w", n.name, err)
	}
	return nil
}
