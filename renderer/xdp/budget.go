package xdp

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// ownerShare is the part of the policy memory that the rules of one namespace may take.
const ownerShare = 4

// reconsiderAfter is how long a list stays refused while only addresses change.
const reconsiderAfter = 30 * time.Second

// budget is what the image may take.
func (o Options) budget() compile.Budget {
	lines := int(o.PolicyMemory / bpf.LineBytes)
	return compile.Budget{Lines: lines, Share: lines / ownerShare}
}

// reconsider has the image look again at what it refused, from time to time. What is different of
// a namespace itself it looks at anyway.
func (r *Renderer) reconsider() {
	if len(r.closed) > 0 && time.Since(r.reconsidered) >= reconsiderAfter {
		r.image.Reconsider()
		r.reconsidered = time.Now()
	}
}

// enforced returns the endpoints as the image has them: closed where their lists are refused.
func (r *Renderer) enforced() map[uint32]compile.Endpoint {
	out := maps.Clone(r.ends)
	if len(r.closed) == 0 {
		r.reconsidered = time.Now()
	}
	r.closed = r.image.Refused()
	for _, x := range r.closed {
		e := out[x.ID]
		if x.Dir == compile.ToPod {
			e.ToPod = compile.Closed
		} else {
			e.FromPod = compile.Closed
		}
		out[x.ID] = e
	}
	return out
}

// closedList is a list that is refused.
type closedList struct {
	compile.Refusal
	list *renderer.RuleList
	pod  api.PodID
}

// overBudget reports the rules of lists that are refused.
func (r *Renderer) overBudget() []renderer.Unenforced {
	type rule struct {
		origin api.Origin
		reason string
	}
	var now []closedList
	for _, x := range r.closed {
		now = append(now, closedList{x, r.ends[x.ID].List(x.Dir), r.owner[x.ID]})
	}
	if slices.Equal(now, r.reported) {
		return r.over
	}
	r.reported = now
	origins := make(map[*renderer.RuleList][]api.Origin, len(now))
	pods := map[rule]map[api.PodID]bool{}
	for _, x := range now {
		if origins[x.list] == nil {
			if origins[x.list] = r.origins[x.list]; origins[x.list] == nil {
				origins[x.list] = originsOf(x.list)
			}
		}
		reason := fmt.Sprintf("the rules of namespace %s take more than the %s of the policy memory that they may (--policy-memory)", x.Owner, size(x.Share))
		for _, o := range origins[x.list] {
			of := rule{o, reason}
			if pods[of] == nil {
				pods[of] = map[api.PodID]bool{}
			}
			pods[of][x.pod] = true
		}
	}
	var out []renderer.Unenforced
	for of, at := range pods {
		out = append(out, renderer.Unenforced{Origin: of.origin, Class: api.ClassLimit, Reason: of.reason, Pods: len(at)})
	}
	r.over, r.origins = renderer.SortUnenforced(out), origins
	return r.over
}

// originsOf returns where the rules of a list come from, once each.
func originsOf(l *renderer.RuleList) (out []api.Origin) {
	seen := map[api.Origin]bool{}
	for i := range l.Rules() {
		for _, o := range l.Origins(i) {
			if !seen[o] {
				seen[o] = true
				out = append(out, o)
			}
		}
	}
	return out
}

// size says how much memory some lines are.
func size(lines int) string {
	if bytes := lines * bpf.LineBytes; bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", lines*bpf.LineBytes>>20)
}
