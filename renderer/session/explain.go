package session

import (
	"fmt"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Explain implements renderer.Explainer. It returns the decisions of the tables that a connection
// attempt meets, as installed by the last successful Apply.
func (r *Renderer) Explain(f api.Flow) []renderer.Decision {
	return renderer.WithRenderer(r.Name(), r.cache.Evaluate(f))
}

// NotApplicable implements renderer.Scope. The host stack has two transports. It decides about
// connections that applications open, and about those that reach them from outside of the node.
func (r *Renderer) NotApplicable(f api.Flow) string {
	if f.Protocol != api.TCP && f.Protocol != api.UDP {
		return "the host stack has TCP and UDP only"
	}
	p := r.published.Load()
	src, local := p.onStack(f.Src)
	dst, _ := p.onStack(f.Dst)
	if src || dst && !local {
		return ""
	}
	return "no application on the host stack sends it, or gets it from beyond the node"
}

// Serves reports whether a pod had an application namespace in the last Apply. Any goroutine may
// call it; it does not wait for an Apply.
func (r *Renderer) Serves(pod api.PodID) bool {
	_, found := slices.BinarySearchFunc(r.published.Load().spaces, pod, func(s space, pod api.PodID) int { return s.pod.Compare(pod) })
	return found
}

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }

// State implements renderer.Inspector.
func (r *Renderer) State() *renderer.State {
	s := r.published.Load()
	out := &renderer.State{Renderer: r.Name(), Version: s.version, Connected: r.link.Connected(), Unanswered: r.link.Unanswered(), Err: s.err, Forbidden: s.forbidden,
		Drift: s.drifts, Foreign: s.foreign, Capacity: s.capacity, Closed: renderer.ClosedIn(s.unenforced)}
	for _, table := range s.tables {
		t := renderer.Table{Name: table.Name(), Pods: table.Pods, Rules: table.Rules, Origins: table.Origins}
		if t.IsGlobal() {
			t.Entries = s.reach
		}
		for _, p := range s.spaces {
			if p.table == t.Name {
				t.Objects = append(t.Objects, fmt.Sprintf("namespace %d", p.namespace))
				t.Entries += p.rules
			}
		}
		out.Tables = append(out.Tables, t)
	}
	return out
}
