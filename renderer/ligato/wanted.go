package ligato

import (
	"fmt"
	"maps"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// group is a set of interfaces with the same content, and therefore with one ACL.
type group struct {
	content content
	egress  map[string]bool
}

// wanted is the desired content of the store after an Apply.
type wanted struct {
	r       *Renderer
	layout  cache.Layout
	changed map[api.SetID]bool
	expand  *expander

	groups   map[[16]byte]*group // of tables, by content
	global   published           // without content when there is no global table
	isGlobal bool
	pending  []renderer.Pending
	shared   []error
	refused  []error
	oversize []renderer.Unenforced
	trial    []renderer.Digest // tables whose contents are valid only for this plan until it is acknowledged
}

// want derives the desired content from a plan.
func (r *Renderer) want(plan cache.Plan) *wanted {
	w := &wanted{
		r: r, layout: r.cache.Desired(), changed: make(map[api.SetID]bool), groups: make(map[[16]byte]*group),
		expand: &expander{infra: r.infra, nets: cache.NewNets(r.cache.Aggregated)},
	}
	for _, id := range plan.Sets {
		w.changed[id] = true
	}
	w.uplinks()
	owners := w.claims()
	contents := make(map[renderer.Digest]content, len(w.layout.Tables))
	for _, t := range w.layout.Tables {
		contents[t.Digest] = w.contentOf(t)
	}
	for _, name := range slices.Sorted(maps.Keys(owners)) {
		w.place(name, owners[name], contents)
	}
	r.forget(contents)
	return w
}

// uplinks prepares the global table.
func (w *wanted) uplinks() {
	g := w.layout.Global
	if g == nil {
		return
	}
	w.isGlobal = true
	if len(w.r.options.Uplinks) == 0 {
		w.pending = append(w.pending, renderer.Pending{Reason: "no uplink is configured"})
	}
	uplinks := slices.Compact(slices.Sorted(slices.Values(w.r.options.Uplinks)))
	w.global = published{content: w.globalContent(g), egress: uplinks}
}

// globalContent returns the desired content of the global ACL. If that is too large, the ACL keeps
// its content, or blocks if it has none.
func (w *wanted) globalContent(g *cache.Table) content {
	c, ok := w.r.contents[g.Digest]
	if !ok || w.names(g.Sets) {
		var err error
		if c, err = w.expand.content(g); err != nil {
			w.refuse(err, g.Origins, 0)
			if c = w.r.held[globalName].content; c.isZero() {
				c = closedContent(w.r.infra)
			}
			return c
		}
	}
	w.keep(g, c)
	return c
}

// claims returns the tables for each interface from the pods that claim it, sorted by pod.
func (w *wanted) claims() map[string][]*cache.Table {
	owners := make(map[string][]*cache.Table)
	for _, pod := range slices.SortedFunc(maps.Keys(w.layout.Pods), api.PodID.Compare) {
		t := w.layout.Pods[pod]
		if t == nil {
			continue
		}
		names := w.r.options.Interfaces(pod)
		if len(names) == 0 {
			w.pending = append(w.pending, renderer.Pending{Pod: pod, Reason: "no interface is known"})
		}
		for _, name := range names {
			if name == "" {
				continue // the agent would never apply an ACL that names it
			}
			owners[name] = append(owners[name], t)
		}
	}
	return owners
}

// place puts an interface into the group of its table. An interface that has several tables, or is
// also an uplink, is blocked: the intent is unclear. If its table is too large, it keeps its
// current one.
func (w *wanted) place(name string, tables []*cache.Table, contents map[renderer.Digest]content) {
	t := tables[0]
	uplink := w.isGlobal && slices.Contains(w.global.egress, name)
	if uplink || slices.ContainsFunc(tables, func(o *cache.Table) bool { return o != t }) {
		w.shared = append(w.shared, fmt.Errorf("interface %s: %w", name, ErrSharedInterface))
		w.add(name, closedContent(w.r.infra))
		w.global.egress = slices.DeleteFunc(w.global.egress, func(u string) bool { return u == name })
		return
	}
	c := contents[t.Digest]
	if c.isZero() {
		c = w.r.contentAt(name)
	}
	w.add(name, c)
}

// contentAt returns the content of the table that an interface has, or the blocking one.
func (r *Renderer) contentAt(name string) content {
	for _, acl := range slices.Sorted(maps.Keys(r.held)) {
		if p := r.held[acl]; acl != globalName && slices.Contains(p.egress, name) {
			return p.content
		}
	}
	return closedContent(r.infra)
}

func (w *wanted) add(name string, c content) {
	g := w.groups[c.digest]
	if g == nil {
		g = &group{content: c, egress: make(map[string]bool)}
		w.groups[c.digest] = g
	}
	g.egress[name] = true
}

// contentOf returns the desired content of the ACL of a local table. It is empty when the table is
// too large, which is reported.
func (w *wanted) contentOf(t *cache.Table) content {
	if c, ok := w.r.contents[t.Digest]; ok && !w.names(t.Sets) {
		return c
	}
	c, err := w.expand.content(t)
	if err != nil {
		w.refuse(err, t.Origins, len(t.Pods))
		delete(w.r.contents, t.Digest)
		return content{}
	}
	w.keep(t, c)
	return c
}

// keep memoizes the content of a table. If the Apply fails and a set then returns to its old
// members, no later plan reports the set as changed; so the content is kept only on trial.
func (w *wanted) keep(t *cache.Table, c content) {
	w.r.contents[t.Digest] = c
	if w.names(t.Sets) {
		w.trial = append(w.trial, t.Digest)
	}
}

// dropTrial drops the contents that were kept on trial.
func (w *wanted) dropTrial() {
	for _, d := range w.trial {
		delete(w.r.contents, d)
	}
}

// names reports whether one of the sets has changed.
func (w *wanted) names(sets []api.SetID) bool {
	return slices.ContainsFunc(sets, func(id api.SetID) bool { return w.changed[id] })
}

// forget drops the contents of tables that no longer exist.
func (r *Renderer) forget(now map[renderer.Digest]content) {
	g := r.cache.Desired().Global
	maps.DeleteFunc(r.contents, func(d renderer.Digest, _ content) bool {
		_, ok := now[d]
		return !ok && (g == nil || g.Digest != d)
	})
}

// refuse records that the rules of a table do not fit.
func (w *wanted) refuse(err error, origins [][]api.Origin, pods int) {
	w.refused = append(w.refused, err)
	seen := make(map[api.Origin]bool)
	for _, of := range origins {
		for _, o := range of {
			if !seen[o] {
				seen[o] = true
				w.oversize = append(w.oversize, renderer.Unenforced{
					Origin: o, Class: api.ClassLimit, Reason: reasonSize, Effect: renderer.EffectPrevious, Pods: pods,
				})
			}
		}
	}
}
