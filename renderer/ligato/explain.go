package ligato

import (
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Explain returns the decisions of the tables that the first packet of a flow meets. It
// evaluates the tables that the last Commit without an error published; whether the agent
// has applied them is for the agent to say.
func (r *Renderer) Explain(f api.Flow) []renderer.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return renderer.Signed(r.Name(), r.cache.Evaluate(f))
}

// Dump is what the renderer knows of the store, for people.
type Dump struct {
	Error   string      `json:"error,omitempty"`   // of the last Commit
	Pending []string    `json:"pending,omitempty"` // who has no interface
	Tables  []DumpTable `json:"tables,omitempty"`  // local ones by name, then the global one
	ACLs    []DumpACL   `json:"acls,omitempty"`    // ours, by name; unknown after an error
}

// DumpTable is a published table.
type DumpTable struct {
	Name    string           `json:"name"`
	Pods    []api.PodID      `json:"pods,omitempty"`
	Rules   []api.ContivRule `json:"rules"`
	Origins [][]api.Origin   `json:"origins,omitempty"` // by rule
	Entries int              `json:"entries"`           // rules of its ACL
	ACL     string           `json:"acl,omitempty"`     // name; empty when it is not known
}

// DumpACL is an ACL of ours.
type DumpACL struct {
	Key     string   `json:"key"`
	Egress  []string `json:"egress,omitempty"`
	Ingress []string `json:"ingress,omitempty"`
}

// Dump returns what is known to be published. It asks nobody.
func (r *Renderer) Dump() Dump {
	r.mu.Lock()
	defer r.mu.Unlock()
	out := Dump{Pending: slices.Clone(r.pending)}
	if r.lastErr != nil {
		out.Error = r.lastErr.Error()
	}
	l := r.cache.Installed()
	for _, t := range l.Tables {
		out.Tables = append(out.Tables, r.dump(t))
	}
	if l.Global != nil {
		out.Tables = append(out.Tables, r.dump(l.Global))
	}
	for _, name := range slices.Sorted(maps.Keys(r.held)) {
		p := r.held[name]
		out.ACLs = append(out.ACLs, DumpACL{r.prefix + name, p.egress, p.ingress})
	}
	return out
}

func (r *Renderer) dump(t *cache.Table) DumpTable {
	c := r.contents[t.Digest]
	d := DumpTable{Name: t.Name(), Pods: t.Pods, Rules: t.Rules, Origins: t.Origins, Entries: c.count}
	for _, name := range slices.Sorted(maps.Keys(r.held)) {
		if p := r.held[name]; p.content.digest == c.digest && (name == globalName) == (t.Parts != nil) {
			d.ACL = name
		}
	}
	return d
}
