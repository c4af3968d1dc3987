package session

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/cache"
)

// Explain implements renderer.Explainer: the decisions of the tables that a connection attempt
// meets, as the last Commit without an error installed them.
func (r *Renderer) Explain(f api.Flow) []renderer.Decision {
	return renderer.Signed(r.Name(), r.cache.Evaluate(f))
}

// Abstains implements renderer.Abstainer: the host stack has two transports, and decides about
// what applications open, and about what reaches them from beyond the node.
func (r *Renderer) Abstains(f api.Flow) string {
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

// snapshot is what readers see: the outcome of the last Commit. It does not change.
type snapshot struct {
	version    string
	err        error
	pods       map[netip.Addr]bool // addresses of pods: whether one has an application namespace
	tables     []*cache.Table      // local ones by digest, then the global one
	spaces     []space             // by pod
	reach      int                 // rules about who reaches pods
	forbidden  int
	unenforced []renderer.Unenforced
	drifts     map[string]uint64
	foreign    []renderer.Foreign
}

// onStack reports whether an address is that of a pod that has an application namespace, and
// whether it is that of a pod at all.
func (s *snapshot) onStack(a netip.Addr) (stack, pod bool) {
	stack, pod = s.pods[a]
	return stack, pod
}

// Serves reports whether a pod had an application namespace in the last Commit. It waits for no
// Commit; any goroutine may call it.
func (r *Renderer) Serves(pod api.PodID) bool {
	_, found := slices.BinarySearchFunc(r.published.Load().spaces, pod, func(s space, pod api.PodID) int { return s.pod.Compare(pod) })
	return found
}

// publish makes the outcome of a Commit visible.
func (r *Renderer) publish(err error) {
	s := &snapshot{
		version: r.version, err: err, pods: make(map[netip.Addr]bool, len(r.own)), tables: r.cache.InstalledTables(),
		forbidden: r.revoked.left, unenforced: r.shortfall.Unenforced(), drifts: r.drifts, foreign: r.foreign,
	}
	s.spaces, s.reach = r.spaces()
	for id, own := range r.own {
		_, has := r.namespaces[id]
		for _, a := range own {
			s.pods[a] = s.pods[a] || has
		}
	}
	r.published.Store(s)
}

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced { return r.published.Load().unenforced }

// space is an application namespace of a pod.
type space struct {
	pod       api.PodID
	namespace uint32
	table     string // none when it may connect to everybody
	rules     int    // local ones
}

// State implements renderer.Inspector.
func (r *Renderer) State() *renderer.State {
	s := r.published.Load()
	out := &renderer.State{Renderer: r.Name(), Version: s.version, Connected: r.link.Connected(), Waiting: r.link.Waiting(), Err: s.err, Forbidden: s.forbidden,
		Drift: s.drifts, Foreign: s.foreign}
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

// spaces returns the application namespaces of pods, and how many rules say who reaches pods.
func (r *Renderer) spaces() (out []space, reach int) {
	tables := map[api.PodID]string{}
	for _, t := range r.cache.InstalledTables() {
		for _, pod := range t.Pods {
			tables[pod] = t.Name()
		}
	}
	count := map[uint32]int{}
	if r.mirror != nil {
		for s, p := range r.mirror.sections {
			if s.local {
				count[s.namespace] += len(p.rules)
			} else {
				reach += len(p.rules)
			}
		}
	}
	for pod, namespaces := range r.namespaces {
		for _, namespace := range namespaces {
			out = append(out, space{pod, namespace, tables[pod], count[namespace]})
		}
	}
	slices.SortFunc(out, func(a, b space) int { return cmp.Or(a.pod.Compare(b.pod), cmp.Compare(a.namespace, b.namespace)) })
	return out, reach
}
