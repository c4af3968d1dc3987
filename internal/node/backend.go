package node

import (
	"log/slog"
	"net/netip"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Backend is a dataplane and the renderer that programs it. A node opens and closes those that
// its Config lists. What else a backend can do are the abilities of package renderer, which its
// renderer has or has not, and Prober.
type Backend interface {
	// Open makes the renderer. It is called once, and ends what it began when it fails.
	Open(h Host) error
	// Renderer returns the renderer. It is called after Open.
	Renderer() renderer.Renderer
	// Close ends what Open began. It is called once if Open worked.
	Close() error
}

// Host is what a node offers its backends.
type Host struct {
	Log *slog.Logger
	// OnChange asks for an Apply, since something has changed in a dataplane. Any goroutine may
	// call it.
	OnChange func()
	// Served reports whether a pod is served by a host stack, where another backend enforces.
	Served func(pod api.PodID) bool
}

// Prober is a Backend whose dataplane can report its verdict about a packet without sending it.
type Prober interface {
	// Has reports whether an address is that of a pod of this dataplane.
	Has(a netip.Addr) bool
	// Probe returns what becomes of the first packet of a flow from a pod, or in through the
	// uplink when the source is no pod here. No rule counts the packet, and no session is changed.
	Probe(f api.Flow) Walk
}

// Renderers returns those that enforce on this node, in the order of Config.Backends.
func (n *Node) Renderers() []renderer.Renderer { return n.Plugin.Renderers }

// each calls f for every renderer that has an ability.
func each[T any](n *Node, f func(ability T)) {
	for _, r := range n.Renderers() {
		if ability, ok := renderer.As[T](r); ok {
			f(ability)
		}
	}
}

// States returns what the dataplanes enforce, in the order of Renderers, of those that say it.
// It waits for no Apply.
func (n *Node) States() (out []*renderer.State) {
	each(n, func(i renderer.Inspector) { out = append(out, i.State()) })
	return out
}

// Counters is States with what rules decided, where the dataplane counts.
func (n *Node) Counters() (out []*renderer.State) {
	for _, r := range n.Renderers() {
		if c, ok := renderer.As[renderer.Counter](r); ok {
			out = append(out, c.Counters())
		} else if i, ok := renderer.As[renderer.Inspector](r); ok {
			out = append(out, i.State())
		}
	}
	return out
}

// Decisions returns what rules of policies decided, by the names of renderers whose dataplane
// counts.
func (n *Node) Decisions() map[string]map[renderer.CounterKey]uint64 {
	out := map[string]map[renderer.CounterKey]uint64{}
	for _, r := range n.Renderers() {
		if c, ok := renderer.As[renderer.Counter](r); ok {
			if d := c.Decisions(); d != nil {
				out[r.Name()] = d
			}
		}
	}
	return out
}

// served reports whether a renderer enforces for a pod on a host stack.
func (n *Node) served(pod api.PodID) (served bool) {
	each(n, func(x interface{ Serves(pod api.PodID) bool }) { served = served || x.Serves(pod) })
	return served
}
