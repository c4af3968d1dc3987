package renderertest

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Router gives a stack the routes of pods, as the network plugin of a node does: a pod
// that is removed, or an address that it loses, is gone before the rules are, and a new
// one is attached once its rules are in place. Of two pods with an address, the later by
// name has it.
type Router struct {
	Attached map[netip.Addr]api.PodID // as routed

	route   func(a netip.Addr, pod api.PodID) error
	unroute func(a netip.Addr)
	wanted  map[api.PodID][]netip.Addr // as rendered
}

// NewRouter takes how the stack is given a route, and how it is taken away.
func NewRouter(route func(a netip.Addr, pod api.PodID) error, unroute func(a netip.Addr)) *Router {
	return &Router{Attached: map[netip.Addr]api.PodID{}, route: route, unroute: unroute, wanted: map[api.PodID][]netip.Addr{}}
}

// Over returns a renderer whose pods are routed.
func (r *Router) Over(x renderer.Renderer) renderer.Renderer { return routed{x, r} }

type routed struct {
	renderer.Renderer
	router *Router
}

func (x routed) NewTxn(resync bool) renderer.Txn {
	if resync {
		clear(x.router.wanted)
	}
	return routedTxn{x.Renderer.NewTxn(resync), x.router}
}

type routedTxn struct {
	renderer.Txn
	router *Router
}

func (t routedTxn) Render(pod api.PodID, cfg renderer.PodConfig) {
	t.Txn.Render(pod, cfg)
	t.router.wanted[pod] = cfg.IPs
}

func (t routedTxn) Remove(pod api.PodID) {
	t.Txn.Remove(pod)
	delete(t.router.wanted, pod)
}

func (t routedTxn) Commit(ctx context.Context) error {
	t.router.detach()
	if err := t.Txn.Commit(ctx); err != nil {
		return err
	}
	return t.router.Attach()
}

// detach takes away the routes of pods that no longer have the address.
func (r *Router) detach() {
	for a, pod := range r.Attached {
		if !slices.Contains(r.wanted[pod], a) {
			r.unroute(a)
			delete(r.Attached, a)
		}
	}
}

// Attach routes the pods that were rendered, as a Commit without an error does.
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
