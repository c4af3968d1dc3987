package ligato

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Explain returns the decisions of the tables that the first packet of a flow meets. It evaluates
// the tables that the last successful Apply published. Whether the agent has applied them is known
// only to the agent.
func (r *Renderer) Explain(f api.Flow) []renderer.Decision {
	return renderer.WithRenderer(r.Name(), r.cache.Evaluate(f))
}

// snapshot is the immutable outcome of the last Apply that readers see.
type snapshot struct {
	state      renderer.State
	unenforced []renderer.Unenforced
}

// State implements renderer.Inspector. Connected reports whether the store accepted the last
// Apply.
func (r *Renderer) State() *renderer.State { return &r.published.Load().state }

// publish publishes the outcome of an Apply to readers.
func (r *Renderer) publish(err error) {
	s := &snapshot{renderer.State{Renderer: r.Name(), Connected: r.held != nil, Err: err, Pending: r.pending, Capacity: r.cache.Capacity()}, r.unenforced.Unenforced()}
	s.state.Closed = renderer.ClosedIn(s.unenforced)
	names := slices.Sorted(maps.Keys(r.held))
	for _, table := range r.cache.InstalledTables() {
		c := r.contents[table.Digest]
		t := renderer.Table{Name: table.Name(), Pods: table.Pods, Rules: table.Rules, Origins: table.Origins, Entries: c.count}
		for _, name := range names {
			if r.held[name].content.digest == c.digest && (name == globalName) == t.IsGlobal() {
				t.Objects = []string{"acl " + name}
			}
		}
		s.state.Tables = append(s.state.Tables, t)
	}
	r.published.Store(s)
}
