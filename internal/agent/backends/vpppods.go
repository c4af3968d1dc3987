package backends

import (
	"context"
	"net/netip"
	"strings"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/plugins/endpoints"
	"github.com/sluice-net/sluice/plugins/endpoints/wire"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// vppPods knows the interfaces of pods in a VPP, for CNI plugins and for reports.
type vppPods struct {
	*bindings.Watcher // of the interfaces of pods
	identities        acl.PodIdentities
	prompt            func()
	committed         broadcast   // after every transaction
	renderer          vppRenderer // set when the node opens the backend
}

// vppRenderer is what a renderer says of the interfaces of pods.
type vppRenderer interface {
	// Ask, Bound and InterfacesChanged are those of acl.Renderer.
	Ask() (ticket uint64)
	Bound(name string, ticket uint64) (vpp.Bound, bool)
	InterfacesChanged()
	// Interfaces returns the interfaces of pods, by index, and Made those of sluice-cni.
	Interfaces() []vpp.Bound
	Made() []vpp.Made
}

// interfacesChanged makes the renderer look for the interfaces of pods again.
func (v *vppPods) interfacesChanged() {
	v.renderer.InterfacesChanged()
	v.prompt()
}

// Committed implements Waker.
func (v *vppPods) Committed() { v.committed.wake() }

// Identify implements Identifier.
func (v *vppPods) Identify(lives map[api.PodID]*acl.PodIdentity, all bool) {
	if v.identities.Identify(lives, all) {
		v.renderer.InterfacesChanged()
	}
}

// Registered implements Identifier.
func (v *vppPods) Registered() map[api.PodID][]netip.Addr {
	return v.identities.Registered(v.renderer.Made())
}

// List returns the interfaces of pods, by index.
func (v *vppPods) List() (out []wire.Endpoint) {
	for _, b := range v.renderer.Interfaces() {
		e := wire.Endpoint{Interface: b.Name, Index: b.Index, Pod: b.Pod.String(), UID: b.UID, State: b.State, Source: endpoints.SourceKey.String(), Since: b.Since, Reason: b.Reason}
		if b.Pod == (api.PodID{}) {
			e.Pod, _ = strings.CutPrefix(b.Tag, vpp.PodTagPrefix)
		}
		out = append(out, e)
	}
	return out
}

// AwaitVPP makes the renderer look at the interfaces of VPP. It returns the state of one interface
// once that is enforced or the awaited state, or when the time is over.
func (v *vppPods) AwaitVPP(ctx context.Context, q wire.VPP) wire.Endpoint {
	ctx, cancel := context.WithTimeout(ctx, min(q.Timeout, wire.MaxTimeout))
	defer cancel()
	for ticket := v.renderer.Ask(); ; {
		changed := v.committed.wait() // before it is asked, so that nothing is missed
		b, known := v.renderer.Bound(q.Interface, ticket)
		e := endpointOf(q, b, known)
		if e.State == wire.Enforced || e.State == q.Until {
			return e
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return e
		}
	}
}

func endpointOf(v wire.VPP, b vpp.Bound, known bool) wire.Endpoint {
	e := wire.Endpoint{Interface: v.Interface, Pod: v.Namespace + "/" + v.Name, State: wire.Pending, Source: "key", Reason: b.Reason}
	switch {
	case !known:
		e.State, e.Reason = wire.Unknown, "the agent has not found it in VPP as a pod's yet"
	case b.Reason != "":
	case b.Pod.String() != e.Pod:
		e.Reason = "it is that of pod " + b.Pod.String()
	default:
		e.State = wire.Enforced
	}
	return e
}

// broadcast wakes all waiting goroutines. Its zero value is ready.
type broadcast struct {
	mu   sync.Mutex
	next chan struct{} // nil while no goroutine waits
}

// wait returns a channel that the next wake closes.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}
