package renderertest

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Router manages the routes of pods in a dataplane, like the network plugin of a node. A removed
// pod, or a removed address, loses its route before its rules. A new pod gets its route once its
// rules are in place. If two pods share an address, the later one by name gets the route.
type Router struct {
	Attached map[netip.Addr]api.PodID // current routes

	route   func(a netip.Addr, pod api.PodID) error
	unroute func(a netip.Addr)
	wanted  map[api.PodID][]netip.Addr // rendered addresses
}

// NewRouter returns a Router that adds routes with route and removes them with unroute.
func NewRouter(route func(a netip.Addr, pod api.PodID) error, unroute func(a netip.Addr)) *Router {
	return &Router{Attached: map[netip.Addr]api.PodID{}, route: route, unroute: unroute, wanted: map[api.PodID][]netip.Addr{}}
}

// Over returns a renderer whose pods are routed.
func (r *Router) Over(x renderer.Renderer) renderer.Renderer { return routed{x, r} }

type routed struct {
	renderer.Renderer
	router *Router
}

func (x routed) Apply(ctx context.Context, c renderer.Changes) error {
	if c.Resync {
		clear(x.router.wanted)
	}
	for pod, cfg := range c.Pods {
		if cfg == nil {
			delete(x.router.wanted, pod)
		} else {
			x.router.wanted[pod] = cfg.IPs
		}
	}
	x.router.detach()
	if err := x.Renderer.Apply(ctx, c); err != nil {
		return err
	}
	return x.router.Attach()
}

// detach removes the routes of pods that no longer have the address.
func (r *Router) detach() {
	for a, pod := range r.Attached {
		if !slices.Contains(r.wanted[pod], a) {
			r.unroute(a)
			delete(r.Attached, a)
		}
	}
}

// Attach adds the routes of the rendered pods, like a successful Apply.
func (r *Router) Attach() error {
	for _, pod := range slices.SortedFunc(maps.Keys(r.wanted), api.PodID.Compare) {
		for _, a := range r.wanted[pod] {
			r.Attached[a] = pod
			if err := r.route(a, pod); err != nil {
				return err
			}
		}
	}
	return nil
}
