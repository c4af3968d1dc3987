package node

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
)

// attacher stands in for a CNI plugin on the embedded dataplane: every local pod
// gets an interface, tagged as the ACL renderer expects it, and routes to its
// addresses. It wraps the renderer because both must know the same pods: an
// interface is there before the renderer looks for it, and its routes only come
// when policy is enforced, so that no packet reaches a pod unprotected.
//
// Its transactions are used by one goroutine; at may be called by any.
type attacher struct {
	renderer.Renderer
	sw    *vswitch.Switch
	ports map[api.PodID]*port

	// claims holds the pods that have an address, sorted; the first is routed to.
	// There is more than one while an address goes from an old pod to a new one.
	claims map[netip.Addr][]api.PodID
	dirty  map[netip.Addr]bool // claims that changed since they were installed
	gone   map[api.PodID]bool  // removed, but the renderer still holds the interface

	mu     sync.Mutex
	routes map[netip.Addr]uint32 // what is installed
}

// port is the interface of one pod.
type port struct {
	index uint32
	ips   []netip.Addr
}

func newAttacher(r renderer.Renderer, sw *vswitch.Switch) *attacher {
	return &attacher{
		Renderer: r, sw: sw, ports: map[api.PodID]*port{}, claims: map[netip.Addr][]api.PodID{},
		routes: map[netip.Addr]uint32{}, dirty: map[netip.Addr]bool{}, gone: map[api.PodID]bool{},
	}
}

// NewTxn wraps a transaction of the renderer.
func (a *attacher) NewTxn(resync bool) renderer.Txn {
	t := &attachTxn{Txn: a.Renderer.NewTxn(resync), a: a}
	if resync {
		for pod := range a.ports {
			a.detach(pod) // unless it is rendered again
		}
	}
	return t
}

// Explain lets the renderer explain, if it can.
func (a *attacher) Explain(f api.Flow) []renderer.Decision {
	if e, ok := a.Renderer.(renderer.Explainer); ok {
		return e.Explain(f)
	}
	return nil
}

// Unenforced lets the renderer report, if it can.
func (a *attacher) Unenforced() []renderer.Unenforced {
	if r, ok := a.Renderer.(renderer.Reporter); ok {
		return r.Unenforced()
	}
	return nil
}

// at returns the interface that an address is routed to.
func (a *attacher) at(ip netip.Addr) (uint32, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	index, ok := a.routes[ip]
	return index, ok
}

// attachTxn changes interfaces around the renderer's transaction.
type attachTxn struct {
	renderer.Txn
	a *attacher
}

// Render attaches the pod if it is new.
func (t *attachTxn) Render(pod api.PodID, cfg renderer.PodConfig) {
	t.a.attach(pod, cfg.IPs)
	t.Txn.Render(pod, cfg)
}

// Remove detaches the pod once the renderer has let go of it.
func (t *attachTxn) Remove(pod api.PodID) {
	t.a.detach(pod)
	t.Txn.Remove(pod)
}

// Commit takes away the routes of addresses that pods lost, commits, and then
// routes new addresses and removes interfaces. After an error the rest waits for
// the next Commit.
func (t *attachTxn) Commit(ctx context.Context) error {
	t.a.unroute()
	if err := t.Txn.Commit(ctx); err != nil {
		return err
	}
	return t.a.settle()
}

func (a *attacher) attach(pod api.PodID, ips []netip.Addr) {
	delete(a.gone, pod)
	p := a.ports[pod]
	if p == nil {
		p = &port{index: a.sw.AddInterface("pod/"+pod.String(), acl.InterfaceTag(pod))}
		a.ports[pod] = p
	}
	a.claim(pod, p, ips)
}

func (a *attacher) detach(pod api.PodID) {
	if p := a.ports[pod]; p != nil {
		a.gone[pod] = true
		a.claim(pod, p, nil)
	}
}

// claim replaces the addresses of a pod.
func (a *attacher) claim(pod api.PodID, p *port, ips []netip.Addr) {
	for _, ip := range p.ips {
		if !slices.Contains(ips, ip) {
			a.claims[ip] = slices.DeleteFunc(a.claims[ip], func(c api.PodID) bool { return c == pod })
			a.dirty[ip] = true
		}
	}
	for _, ip := range ips {
		if i, found := slices.BinarySearchFunc(a.claims[ip], pod, api.PodID.Compare); !found {
			a.claims[ip] = slices.Insert(a.claims[ip], i, pod)
			a.dirty[ip] = true
		}
	}
	p.ips = slices.Clone(ips)
}

// unroute removes routes to pods that no longer have the address.
func (a *attacher) unroute() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ip := range a.dirty {
		index, routed := a.routes[ip]
		if routed && (len(a.claims[ip]) == 0 || a.ports[a.claims[ip][0]].index != index) {
			a.sw.RemoveRoute(netip.PrefixFrom(ip, ip.BitLen()))
			delete(a.routes, ip)
		}
	}
}

// settle routes addresses to their pods and removes the interfaces of pods that
// are gone.
func (a *attacher) settle() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ip := range slices.SortedFunc(maps.Keys(a.dirty), netip.Addr.Compare) {
		if len(a.claims[ip]) == 0 {
			delete(a.claims, ip)
			continue
		}
		index := a.ports[a.claims[ip][0]].index
		if err := a.sw.AddRoute(netip.PrefixFrom(ip, ip.BitLen()), index); err != nil {
			return fmt.Errorf("route to pod %s: %w", a.claims[ip][0], err)
		}
		a.routes[ip] = index
	}
	clear(a.dirty)
	for pod := range a.gone {
		a.sw.RemoveInterface(a.ports[pod].index)
		delete(a.ports, pod)
	}
	clear(a.gone)
	return nil
}
