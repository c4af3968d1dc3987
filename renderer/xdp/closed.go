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

// ownerShare divides the policy memory: the rules of one namespace may take a quarter of it.
const ownerShare = 4

// reconsiderAfter is how often the image evaluates refused lists again while only addresses change.
const reconsiderAfter = 30 * time.Second

// budget returns the memory that the image may use.
func (o Options) budget() compile.Budget {
	lines := int(o.PolicyMemory / bpf.LineBytes)
	return compile.Budget{Lines: lines, Share: lines / ownerShare}
}

// closedLists holds the lists that the image refuses, and the report about their rules.
type closedLists struct {
	refused      []compile.Refusal
	reconsidered time.Time // when the image evaluated them last

	reported   []closedList // whose rules are in unenforced
	unenforced []renderer.Unenforced
	origins    map[*renderer.RuleList][]api.Origin // of lists in reported
}

// reconsider makes the image evaluate the refused lists again, at most once per reconsiderAfter.
// The image evaluates the lists of a namespace without being asked when that namespace changes.
func (c *closedLists) reconsider(image *compile.Image) {
	if len(c.refused) > 0 && time.Since(c.reconsidered) >= reconsiderAfter {
		image.Reconsider()
		c.reconsidered = time.Now()
	}
}

// update records which lists the image refuses. It returns the endpoints as the image enforces
// them: blocked in the directions whose lists are refused, and with the lists that they have while
// new ones are not written.
func (c *closedLists) update(image *compile.Image, eps map[uint32]compile.Endpoint) map[uint32]compile.Endpoint {
	out := maps.Clone(eps)
	if len(c.refused) == 0 {
		c.reconsidered = time.Now()
	}
	c.refused = image.Refused()
	apart := image.Waiting()
	for _, x := range c.refused {
		apart = append(apart, x.ID)
	}
	for _, id := range apart {
		e := out[id]
		e.ToPod, e.FromPod = image.InForce(id, compile.ToPod), image.InForce(id, compile.FromPod)
		out[id] = e
	}
	return out
}

// closedList is a refused list.
type closedList struct {
	compile.Refusal
	list *renderer.RuleList
	pod  api.PodID
}

// report returns the rules of the refused lists.
func (c *closedLists) report(eps endpoints) []renderer.Unenforced {
	type rule struct {
		origin api.Origin
		reason string
	}
	var now []closedList
	for _, x := range c.refused {
		now = append(now, closedList{x, eps.lists[x.ID].List(x.Dir), eps.owner[x.ID]})
	}
	if slices.Equal(now, c.reported) {
		return c.unenforced
	}
	c.reported = now
	type closedFor struct {
		list   *renderer.RuleList
		reason string
	}
	pods, order := map[closedFor]map[api.PodID]bool{}, []closedFor{} // many pods may have one list
	for _, x := range now {
		of := closedFor{x.list, fmt.Sprintf("the rules of namespace %s take more than their share of the policy memory, %s (--policy-memory)", x.Owner, size(x.Share))}
		if pods[of] == nil {
			pods[of], order = map[api.PodID]bool{}, append(order, of)
		}
		pods[of][x.pod] = true
	}
	origins := make(map[*renderer.RuleList][]api.Origin, len(now))
	rules := map[rule]*podsOfRule{}
	for _, of := range order {
		if origins[of.list] == nil {
			if origins[of.list] = c.origins[of.list]; origins[of.list] == nil {
				origins[of.list] = originsOf(of.list)
			}
		}
		for _, o := range origins[of.list] {
			if r := rules[rule{o, of.reason}]; r != nil {
				r.add(pods[of])
			} else {
				rules[rule{o, of.reason}] = &podsOfRule{of: pods[of]}
			}
		}
	}
	var out []renderer.Unenforced
	for of, r := range rules {
		out = append(out, renderer.Unenforced{Origin: of.origin, Class: api.ClassLimit, Reason: of.reason, Pods: len(r.of)})
	}
	c.unenforced, c.origins = renderer.SortUnenforced(out), origins
	return c.unenforced
}

// podsOfRule are the pods that a rule applies to: those of one list, or, once they are its own, of
// several.
type podsOfRule struct {
	of  map[api.PodID]bool
	own bool
}

func (r *podsOfRule) add(more map[api.PodID]bool) {
	if !r.own {
		r.of, r.own = maps.Clone(r.of), true
	}
	maps.Copy(r.of, more)
}

// originsOf returns the distinct origins of the rules of a list.
func originsOf(l *renderer.RuleList) (out []api.Origin) {
	seen := map[api.Origin]bool{}
	for _, of := range l.AllOrigins() {
		for _, o := range of {
			if !seen[o] {
				seen[o] = true
				out = append(out, o)
			}
		}
	}
	return out
}

// reasonMemory is reported when no policy map is large enough for the new policy.
const reasonMemory = "the policy memory of the kernel is full"

// notInstalled reports all rules of pods as not enforced: only what was installed before stays in
// force.
func notInstalled(desired map[api.PodID]renderer.PodConfig) (out []renderer.Unenforced) {
	pods := map[api.Origin]int{}
	for _, cfg := range desired {
		for _, l := range []*renderer.RuleList{cfg.Ingress, cfg.Egress} { // the rules of a list are of one direction
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

// size formats the memory that some lines take.
func size(lines int) string {
	if bytes := lines * bpf.LineBytes; bytes < 1<<20 {
		return fmt.Sprintf("%d KiB", bytes>>10)
	}
	return fmt.Sprintf("%d MiB", lines*bpf.LineBytes>>20)
}
