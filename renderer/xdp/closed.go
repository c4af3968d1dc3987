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

// closedLists are the lists that the image refuses, and the report about their rules.
type closedLists struct {
	refused      []compile.Refusal
	reconsidered time.Time // when the image looked at that again

	reported []closedList // of which the rules are in over
	over     []renderer.Unenforced
	origins  map[*renderer.RuleList][]api.Origin // of lists in reported
}

// reconsider has the image look again at what it refused, from time to time. What is different of
// a namespace itself it looks at anyway.
func (c *closedLists) reconsider(image *compile.Image) {
	if len(c.refused) > 0 && time.Since(c.reconsidered) >= reconsiderAfter {
		image.Reconsider()
		c.reconsidered = time.Now()
	}
}

// update takes down what the image refuses, and returns the endpoints as it has them: closed where
// their lists are refused.
func (c *closedLists) update(image *compile.Image, ends map[uint32]compile.Endpoint) map[uint32]compile.Endpoint {
	out := maps.Clone(ends)
	if len(c.refused) == 0 {
		c.reconsidered = time.Now()
	}
	c.refused = image.Refused()
	for _, x := range c.refused {
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

// report returns the rules of lists that are refused.
func (c *closedLists) report(ends endpoints) []renderer.Unenforced {
	type rule struct {
		origin api.Origin
		reason string
	}
	var now []closedList
	for _, x := range c.refused {
		now = append(now, closedList{x, ends.lists[x.ID].List(x.Dir), ends.owner[x.ID]})
	}
	if slices.Equal(now, c.reported) {
		return c.over
	}
	c.reported = now
	origins := make(map[*renderer.RuleList][]api.Origin, len(now))
	pods := map[rule]map[api.PodID]bool{}
	for _, x := range now {
		if origins[x.list] == nil {
			if origins[x.list] = c.origins[x.list]; origins[x.list] == nil {
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
	c.over, c.origins = renderer.SortUnenforced(out), origins
	return c.over
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

// reasonMemory is why nothing new is enforced when no policy map is large enough.
const reasonMemory = "the memory of the classifier is full"

// notInstalled returns the rules of pods, of which none will be in force that is not already.
func notInstalled(desired map[api.PodID]renderer.PodConfig) (out []renderer.Unenforced) {
	pods := map[api.Origin]int{}
	for _, cfg := range desired {
		for _, l := range []*renderer.RuleList{cfg.Ingress, cfg.Egress} { // whose rules are of one direction
			for _, o := range originsOf(l) {
				pods[o]++
			}
		}
	}
	for o, n := range pods {
		out = append(out, renderer.Unenforced{Origin: o, Class: api.ClassLimit, Reason: reasonMemory, Effect: renderer.EffectPrevious, Pods: n})
	}
	return renderer.SortUnenforced(out)
}

// size says how much memory some lines are.
func size(lines int) string {
	if bytes := lines * bpf.LineBytes; bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", lines*bpf.LineBytes>>20)
}
