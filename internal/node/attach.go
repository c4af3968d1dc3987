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

// Ports is a dataplane as a CNI plugin sees it: it has interfaces, and routes to them.
type Ports interface {
	// AddInterface adds an interface that is up, and returns its index.
	AddInterface(name, tag string) (swIfIndex uint32)
	// RemoveInterface reports whether the interface was there.
	RemoveInterface(swIfIndex uint32) bool
	// AddRoute routes a prefix to an interface, and nowhere else.
	AddRoute(prefix netip.Prefix, swIfIndex uint32) error
	// RemoveRoute reports whether the route was there.
	RemoveRoute(prefix netip.Prefix) bool
}

var _ Ports = (*vswitch.Switch)(nil)

// Attacher stands in for a CNI plugin: every local pod gets an interface, tagged as the ACL
// renderer expects it, and routes to its addresses. It wraps the renderer because both must know
// the same pods. An interface is there before the renderer looks for it. Its routes only come when
// policy is enforced, so no packet reaches a pod unprotected.
//
// One goroutine at a time calls Apply; At may be called by any.
type Attacher struct {
	renderer.Renderer
	dataplane Ports
	ports     map[api.PodID]*port

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

// NewAttacher returns a renderer that attaches the pods of changes to the dataplane, and passes the
// changes to r.
func NewAttacher(r renderer.Renderer, dataplane Ports) *Attacher {
	return &Attacher{
		Renderer: r, dataplane: dataplane, ports: map[api.PodID]*port{}, claims: map[netip.Addr][]api.PodID{},
		routes: map[netip.Addr]uint32{}, dirty: map[netip.Addr]bool{}, gone: map[api.PodID]bool{},
	}
}

// Apply attaches new pods and takes away the routes of addresses that pods lost, has the renderer
// apply the changes, and then routes new addresses and removes the interfaces of pods that are gone.
// After an error the rest waits for the next Apply.
func (a *Attacher) Apply(ctx context.Context, c renderer.Changes) error {
	if c.Resync {
		for pod := range a.ports {
			a.detach(pod) // unless it is named
		}
	}
	for pod, cfg := range c.AllPods() {
		if cfg == nil {
			a.detach(pod)
		} else {
			a.attach(pod, cfg.IPs)
		}
	}
	a.unroute()
	if err := a.Renderer.Apply(ctx, c); err != nil {
		return err
	}
	return a.settle()
}

// Unwrap returns the renderer, whose abilities are those of the Attacher.
func (a *Attacher) Unwrap() renderer.Renderer { return a.Renderer }

// At returns the interface that an address is routed to.
func (a *Attacher) At(ip netip.Addr) (uint32, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	index, ok := a.routes[ip]
	return index, ok
}

func (a *Attacher) attach(pod api.PodID, ips []netip.Addr) {
	delete(a.gone, pod)
	p := a.ports[pod]
	if p == nil {
		p = &port{index: a.dataplane.AddInterface(podInterface+pod.String(), acl.InterfaceTag(pod))}
		a.ports[pod] = p
	}
	a.claim(pod, p, ips)
}

func (a *Attacher) detach(pod api.PodID) {
	if p := a.ports[pod]; p != nil {
		a.gone[pod] = true
		a.claim(pod, p, nil)
	}
}

// claim replaces the addresses of a pod.
func (a *Attacher) claim(pod api.PodID, p *port, ips []netip.Addr) {
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
func (a *Attacher) unroute() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for ip := range a.dirty {
		index, routed := a.routes[ip]
		if routed && (len(a.claims[ip]) == 0 || a.ports[a.claims[ip][0]].index != index) {
			a.dataplane.RemoveRoute(netip.PrefixFrom(ip, ip.BitLen()))
			delete(a.routes, ip)
		}
	}
}

// settle routes addresses to their pods and removes the interfaces of pods that
// are gone.
func (a *Attacher) settle() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, ip := range slices.SortedFunc(maps.Keys(a.dirty), netip.Addr.Compare) {
		if len(a.claims[ip]) == 0 {
			delete(a.claims, ip)
			continue
		}
		index := a.ports[a.claims[ip][0]].index
		if err := a.dataplane.AddRoute(netip.PrefixFrom(ip, ip.BitLen()), index); err != nil {
			return fmt.Errorf("route to pod %s: %w", a.claims[ip][0], err)
		}
		a.routes[ip] = index
	}
	clear(a.dirty)
	for pod := range a.gone {
		a.dataplane.RemoveInterface(a.ports[pod].index)
		delete(a.ports, pod)
	}
	clear(a.gone)
	return nil
}
