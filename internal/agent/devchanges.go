package agent

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/agent/cluster"
	"github.com/sluice-net/sluice/internal/analysis/explain"
	"github.com/sluice-net/sluice/internal/analysis/matrix"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/internal/lib/term"
	"github.com/sluice-net/sluice/internal/view"
)

// moment is what a person was shown last: who can talk to whom, and the policies and endpoints that
// say so. They are of one state, so that a change is never shown by its flows alone. The status is
// of the same state or of an earlier one.
type moment struct {
	policies  map[api.PolicyID]proto.Message
	endpoints []matrix.Endpoint
	spec      explain.Specification
	matrix    view.Matrix
	status    view.Status
	counts    string // of the state's objects, in words
}

func newMoment(s cluster.State, spec explain.Specification) moment {
	m := moment{policies: map[api.PolicyID]proto.Message{}, endpoints: s.Endpoints(), spec: spec}
	add := func(p proto.Message) {
		id, err := model.IDOf(p)
		var kind api.PolicyKind
		if err == nil && kind.UnmarshalText([]byte(id.Kind.String())) == nil {
			m.policies[api.PolicyID{Kind: kind, Namespace: id.Namespace, Name: id.Name}] = p
		}
	}
	for _, p := range s.Policies {
		add(p)
	}
	for _, p := range s.ClusterPolicies {
		add(p)
	}
	return m
}

// policyChange is what became of policies, and of flows by that.
type policyChange struct {
	policies []string // each with what became of it; none: pods, namespaces or nodes changed
	flows    []matrix.Difference
}

// changedPolicies returns what became of policies, in words, by their names.
func changedPolicies(before, after moment) map[api.PolicyID]string {
	out := map[api.PolicyID]string{}
	for id, p := range after.policies {
		if old, ok := before.policies[id]; !ok {
			out[id] = "added"
		} else if !proto.Equal(old, p) {
			out[id] = "changed"
		}
	}
	for id := range before.policies {
		if _, ok := after.policies[id]; !ok {
			out[id] = "deleted"
		}
	}
	return out
}

// changesBetween sums differences up by the policies that were added, changed or deleted. Those
// that explain the same differences together are one, those that explain none come at the end, and
// what no policy explains last.
func changesBetween(before, after moment, differences []matrix.Difference) []policyChange {
	changed, at := changedPolicies(before, after), map[string]int{}
	var out []policyChange
	silent := maps.Clone(changed)
	var other policyChange
	for _, d := range differences {
		by := causes(before, after, d, changed)
		if by == nil {
			other.flows = append(other.flows, d)
			continue
		}
		c := policyChange{}
		for _, id := range by {
			delete(silent, id)
			c.policies = append(c.policies, id.Short()+" "+changed[id])
		}
		key := strings.Join(c.policies, "; ")
		if _, ok := at[key]; !ok {
			at[key], out = len(out), append(out, c)
		}
		out[at[key]].flows = append(out[at[key]].flows, d)
	}
	for _, id := range slices.SortedFunc(maps.Keys(silent), api.PolicyID.Compare) {
		out = append(out, policyChange{policies: []string{id.Short() + " " + changed[id]}})
	}
	if other.flows != nil {
		out = append(out, other)
	}
	return out
}

// maxAsked bounds the flows of one difference that are asked about.
const maxAsked = 32

// causes returns which of the changed policies explain a difference: of what opened those that
// permit it now, else those that denied it; of what closed those that deny it now, else those that
// permitted it.
func causes(before, after moment, d matrix.Difference, changed map[api.PolicyID]string) (out []api.PolicyID) {
	asked := 0
	for f := range flowsOf(before, after, d) {
		if asked++; asked > maxAsked {
			break
		}
		was, is := before.spec.Verdict(f), after.spec.Verdict(f)
		if was.Allowed == is.Allowed {
			continue
		}
		for _, v := range []oracle.Verdict{is, was} {
			for _, dv := range []oracle.DirectionVerdict{v.Egress, v.Ingress} {
				for _, o := range dv.Deciding {
					if _, ok := changed[o.Policy]; ok && dv.Allowed == v.Allowed && !slices.Contains(out, o.Policy) {
						out = append(out, o.Policy)
					}
				}
			}
			if out != nil {
				slices.SortFunc(out, api.PolicyID.Compare)
				return out
			}
		}
	}
	return nil
}

// flowsOf are flows of a difference between endpoints that there are now, or were.
func flowsOf(before, after moment, d matrix.Difference) func(yield func(api.Flow) bool) {
	members := func(group string) (out []netip.Addr) {
		for _, e := range slices.Concat(after.endpoints, before.endpoints) {
			if e.Group == group || strings.HasPrefix(e.Group, group+"/") {
				out = append(out, e.Addrs...)
			}
		}
		return out
	}
	return func(yield func(api.Flow) bool) {
		for _, src := range members(d.From) {
			for _, dst := range members(d.To) {
				if src.Is4() == dst.Is4() && src != dst && !yield(api.Flow{Src: src, Dst: dst, Protocol: d.Port.Protocol, DstPort: d.Port.Number}) {
					return
				}
			}
		}
	}
}

// maxFlows bounds the flows that are named of a change.
const maxFlows = 5

// writeChange writes a change, and some of the flows that it opens and closes.
func writeChange(w *term.Writer, c policyChange) {
	opened, closed := 0, 0
	for _, d := range c.flows {
		if d.Is > d.Was {
			opened++
		} else {
			closed++
		}
	}
	name := "pods, namespaces or nodes changed"
	if len(c.policies) > 0 {
		name = fewPolicies(c.policies)
	}
	switch {
	case len(c.flows) == 0:
		w.Printf("  %s: no flow changes\n", name)
		return
	case closed == 0:
		w.Printf("  %s: %s opened\n", name, term.Count(opened, "flow"))
	case opened == 0:
		w.Printf("  %s: %s closed\n", name, term.Count(closed, "flow"))
	default:
		w.Printf("  %s: %s opened, %d closed\n", name, term.Count(opened, "flow"), closed)
	}
	for _, d := range c.flows[:min(len(c.flows), maxFlows)] {
		writeDifference(w, d)
	}
	if more := len(c.flows) - maxFlows; more > 0 {
		w.Printf("    and %d more: see sluicectl matrix --open\n", more)
	}
}

// fewPolicies names the first of some.
func fewPolicies(names []string) string {
	const most = 3
	if more := len(names) - most; more > 1 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), more)
	}
	return strings.Join(names, ", ")
}

func writeDifference(w *term.Writer, d matrix.Difference) {
	sign, style := "opened", term.Green
	if d.Is < d.Was {
		sign, style = "closed", term.Red
	}
	note := ""
	if d.Is == matrix.Some {
		note = " (some pods)"
	}
	text := fmt.Sprintf("%s -> %s %s%s", d.From, d.To, d.Port, note)
	w.Printf("    %s  %s\n", w.Styled(style, sign), term.Shortened(text, max(0, cmp.Or(w.Width(), 1<<20)-12)))
}
