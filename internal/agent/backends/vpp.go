package backends

import (
	"context"
	"net/netip"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/endpoints"
	"github.com/sluice-net/sluice/endpoints/wire"
	"github.com/sluice-net/sluice/internal/agent/metrics"
	"github.com/sluice-net/sluice/internal/agent/verdicts/sampled"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/plugins/bindings"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// VPP is a VPP behind a socket.
type VPP struct {
	node.VPP
	*bindings.Watcher // of the interfaces of pods
	identities        acl.PodIdentities
	prompt            func()
	committed         broadcast // after every transaction
	mute              bool
	sampled.Source    // made by Open
}

func newVPP(d Deps) (node.Backend, error) {
	o, err := d.Config.ACL()
	if err != nil {
		return nil, err
	}
	v := &VPP{VPP: node.VPP{Options: o}, mute: d.Config.VPP.StatsSocket == "" && len(d.Config.VPP.Traces) == 0}
	v.Socket, v.Nodes, v.Log = d.Config.VPP.Socket, d.Config.VPP.Traces, d.Log.With("plugin", "verdicts")
	v.Watcher = watcher(d, bindings.Config{OnChange: v.interfacesChanged}, ".interfaces")
	v.Options.Pods.Bindings, v.Options.Pods.Refuses = v.Watcher, v.identities.Refuses
	return v, nil
}

// Open implements node.Backend.
func (v *VPP) Open(h node.Host) error {
	v.prompt = h.OnChange
	err := v.VPP.Open(h)
	v.Rules = v.ACL
	return err
}

// Mute reports whether settings have VPP count and trace nothing.
func (v *VPP) Mute() bool { return v.mute }

// interfacesChanged makes the renderer look for the interfaces of pods again.
func (v *VPP) interfacesChanged() {
	v.ACL.InterfacesChanged()
	v.prompt()
}

// Committed implements Waker.
func (v *VPP) Committed() { v.committed.wake() }

// Collectors returns the metrics of the dataplane.
func (v *VPP) Collectors() []prometheus.Collector {
	return []prometheus.Collector{metrics.ACLMemory(v.ACL.State)}
}

// Identify implements Identifier.
func (v *VPP) Identify(lives map[api.PodID]*acl.PodIdentity, all bool) {
	if v.identities.Identify(lives, all) {
		v.ACL.InterfacesChanged()
	}
}

// Registered implements Identifier.
func (v *VPP) Registered() map[api.PodID][]netip.Addr { return v.identities.Registered(v.ACL.Made()) }

// List returns the interfaces of pods, by index.
func (v *VPP) List() (out []wire.Endpoint) {
	for _, b := range v.ACL.Endpoints() {
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
func (v *VPP) AwaitVPP(ctx context.Context, q wire.VPP) wire.Endpoint {
	ctx, cancel := context.WithTimeout(ctx, min(q.Timeout, wire.MaxTimeout))
	defer cancel()
	for ticket := v.ACL.Ask(); ; {
		changed := v.committed.wait() // before it is asked, so that nothing is missed
		b, known := v.ACL.Bound(q.Interface, ticket)
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

func endpointOf(v wire.VPP, b acl.Bound, known bool) wire.Endpoint {
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
