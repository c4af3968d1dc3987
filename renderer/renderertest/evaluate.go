package renderertest

import (
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// Verdict returns the verdict of the installed rules on the first packet of a flow. The ingress
// list of the sending pod and the egress list of the receiving pod decide, where these exist.
// Traffic of a pod to itself never crosses the vswitch and is permitted.
func (r *Recorder) Verdict(f api.Flow) api.Action {
	return verdict(r.Explain(f))
}

// Explain implements renderer.Explainer.
func (r *Recorder) Explain(f api.Flow) []renderer.Decision {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.explain(r.name, f)
}

// Ends returns the verdicts at the two ends of a flow.
func (r *Recorder) Ends(f api.Flow) Ends {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state.ends(f)
}

func (s *state) explain(name string, f api.Flow) []renderer.Decision {
	src, dst := s.tables(name, f)
	return append(src, dst...)
}

// tables returns the decisions at the sending and at the receiving end.
func (s *state) tables(name string, f api.Flow) (src, dst []renderer.Decision) {
	for _, pod := range s.podsAt(f.Src, f.Dst) {
		if l := s.pods[pod].Ingress; l != nil {
			src = append(src, s.decide(name, "ingress of "+pod.String(), l, f))
		}
	}
	for _, pod := range s.podsAt(f.Dst, f.Src) {
		if l := s.pods[pod].Egress; l != nil {
			dst = append(dst, s.decide(name, "egress of "+pod.String(), l, f))
		}
	}
	return src, dst
}

// ends returns the verdicts at the two ends of a flow.
func (s *state) ends(f api.Flow) Ends {
	src, dst := s.tables("", f)
	return Ends{verdict(src), verdict(dst)}
}

func verdict(decisions []renderer.Decision) api.Action {
	for _, d := range decisions {
		if d.Action == api.Deny {
			return api.Deny
		}
	}
	return api.Permit
}

// podsAt returns the pods that have one address but not the other, sorted. There are several while
// an address moves between pods; all of them must permit.
func (s *state) podsAt(a, not netip.Addr) []api.PodID {
	var pods []api.PodID
	for _, pod := range s.byAddr[a] {
		if !slices.Contains(s.pods[pod].IPs, not) {
			pods = append(pods, pod)
		}
	}
	slices.SortFunc(pods, api.PodID.Compare)
	return pods
}

// decide returns the first rule that matches; a list without a match denies.
func (s *state) decide(name, table string, l *renderer.RuleList, f api.Flow) renderer.Decision {
	d := renderer.Decision{Renderer: name, Table: table, Rule: -1, Action: api.Deny}
	for i, rule := range l.All() {
		if rule.Matches(f, s.inSet) {
			d.Rule, d.Match, d.Action, d.Origins = i, rule, rule.Action, l.Origins(i)
			break
		}
	}
	return d
}

func (s *state) inSet(id api.SetID, a netip.Addr) bool { return s.sets[id].contains(a) }
