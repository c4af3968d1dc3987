package preview

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/explain"
)

// grouping puts flows together that open or close for one reason on the same ports.
type grouping struct {
	*comparison
	workloads map[string][]api.PodID // pods of either state by workload
	namespace map[string]int         // how many pods a namespace has
	pods      map[api.PodID]string   // workloads by pod
}

func newGrouping(c *comparison) *grouping {
	g := &grouping{comparison: c, workloads: map[string][]api.PodID{}, namespace: map[string]int{}, pods: map[api.PodID]string{}}
	for _, s := range []*state{c.was, c.is} {
		for id, p := range s.pods {
			g.pods[id] = explain.GroupName(p.Pod)
		}
	}
	for id, w := range g.pods {
		g.workloads[w] = append(g.workloads[w], id)
		g.namespace[id.Namespace]++
	}
	return g
}

// reason is what flows have in common that stand in one row.
type reason struct {
	opens   bool
	ports   string
	was, is string
	family  string
}

// pairs are flows of one reason, by their sides.
type pairs struct {
	of    flows // one of them
	words []string
	to    map[string]map[string]bool // sources by destination
	sides map[string]party
}

// rows returns the opened and closed flows, in few rows.
func (g *grouping) rows(results []result) []Difference {
	byReason := map[reason]*pairs{}
	var order []reason
	for _, f := range joined(results) {
		k := reason{f.opens, strings.Join(f.ports.words(f.of), ", "), f.was.text, f.is.text, f.family}
		p := byReason[k]
		if p == nil {
			p = &pairs{of: f.flows, words: f.ports.words(f.of), to: map[string]map[string]bool{}, sides: map[string]party{}}
			byReason[k], order = p, append(order, k)
		}
		from, to := p.side(f.from), p.side(f.to)
		if p.to[to] == nil {
			p.to[to] = map[string]bool{}
		}
		p.to[to][from] = true
	}
	var out []Difference
	for _, k := range order {
		out = append(out, g.split(k, byReason[k])...)
	}
	slices.SortStableFunc(out, Difference.compare)
	return out
}

// side takes a party and returns its key.
func (p *pairs) side(x party) string {
	key := "outside " + x.name
	if x.class != nil {
		key = x.class.members[0].String()
	}
	if _, ok := p.sides[key]; !ok {
		p.sides[key] = x
	}
	return key
}

// family is flows with the family that they are of, empty for all that there are.
type family struct {
	flows
	family string
}

// joined puts flows together that are alike but for their family, or for the addresses outside.
func joined(results []result) (out []family) {
	for _, r := range results {
		at := map[string]int{}
		for _, f := range r.flows {
			key := fmt.Sprint(f.from.key(), f.to.key(), f.opens, f.ports.words(f.of), f.was.text, "\n", f.is.text)
			i, ok := at[key]
			if !ok {
				at[key] = len(out)
				x := family{flows: f}
				if f.both() {
					x.family = map[bool]string{true: "IPv4", false: "IPv6"}[f.is4]
				}
				out = append(out, x)
				continue
			}
			out[i].family = ""
			out[i].from.where = append(slices.Clip(out[i].from.where), f.from.where...)
			out[i].to.where = append(slices.Clip(out[i].to.where), f.to.where...)
			out[i].probes = append(slices.Clip(out[i].probes), f.probes...)
		}
	}
	for i := range out {
		out[i].from.say()
		out[i].to.say()
	}
	return out
}

// key is what parties have in common that are named together.
func (p party) key() string {
	if p.class == nil {
		return "outside " + p.name
	}
	return p.class.members[0].String()
}

// say gives a party outside its name.
func (p *party) say() {
	if p.class == nil && p.name == "" {
		p.name = strings.Join(blockWords(p.where, p.all), ", ")
	}
}

// both reports whether there are flows of both families between two pods.
func (f flows) both() bool {
	if f.from.class == nil || f.to.class == nil {
		return false // the address says it
	}
	was, is := between(f.from, f.to, !f.is4)
	return was.exist() || is.exist()
}

// split makes rows of pairs: destinations with equal sources stand together.
func (g *grouping) split(k reason, p *pairs) (out []Difference) {
	bySources := map[string][]string{}
	for _, to := range slices.Sorted(maps.Keys(p.to)) {
		key := strings.Join(slices.Sorted(maps.Keys(p.to[to])), "\n")
		bySources[key] = append(bySources[key], to)
	}
	for _, key := range slices.Sorted(maps.Keys(bySources)) {
		d := Difference{Change: Closed, Ports: p.words, Family: k.family, Was: p.of.was.view(), Is: p.of.is.view()}
		if k.opens {
			d.Change = Opened
		}
		d.From, d.To = g.name(p, strings.Split(key, "\n")), g.name(p, bySources[key])
		out = append(out, d)
	}
	return out
}

func (d decision) view() Decision { return Decision{Text: d.text, Rules: d.origins} }

// name describes the parties on a side.
func (g *grouping) name(p *pairs, keys []string) (s Side) {
	pods := map[api.PodID]bool{}
	for _, k := range keys {
		x := p.sides[k]
		if x.class == nil {
			s.Outside = append(s.Outside, x.name)
			continue
		}
		for _, id := range x.class.members {
			pods[id] = true
		}
	}
	if s.Pods = len(pods); s.Pods > 0 {
		s.Workloads, s.Groups = g.meaning(pods), g.groupsOf(pods)
	}
	return s
}

// groupsOf returns the workloads of pods, sorted.
func (g *grouping) groupsOf(pods map[api.PodID]bool) []string {
	of := map[string]bool{}
	for id := range pods {
		of[g.pods[id]] = true
	}
	return sortedKeys(of)
}

// meaning names pods: all of the cluster, of a namespace or of a workload, or how many of it.
func (g *grouping) meaning(pods map[api.PodID]bool) (out []string) {
	if len(pods) == len(g.pods) {
		return []string{"every pod"}
	}
	inNamespace, ofWorkload := map[string]int{}, map[string]int{}
	for id := range pods {
		inNamespace[id.Namespace]++
		ofWorkload[g.pods[id]]++
	}
	workloads := map[string][]string{}
	for _, w := range sortedKeys(ofWorkload) {
		ns, _, _ := strings.Cut(w, "/")
		workloads[ns] = append(workloads[ns], w)
	}
	for _, ns := range sortedKeys(inNamespace) {
		if inNamespace[ns] == g.namespace[ns] && len(workloads[ns]) > 1 {
			out = append(out, "every pod in "+ns)
			continue
		}
		for _, w := range workloads[ns] {
			if all := len(g.workloads[w]); ofWorkload[w] < all {
				w = fmt.Sprintf("%s (%d of %d pods)", w, ofWorkload[w], all)
			}
			out = append(out, w)
		}
	}
	return out
}

// compare orders opened flows before closed ones, then by the sides.
func (d Difference) compare(o Difference) int {
	return cmp.Or(-strings.Compare(string(d.Change), string(o.Change)), strings.Compare(d.To.String(), o.To.String()),
		strings.Compare(d.From.String(), o.From.String()), slices.Compare(d.Ports, o.Ports))
}
