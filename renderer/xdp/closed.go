package xdp

import (
	"fmt"
	"maps"
	"slices"
	"sync"
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
	unenforced func() []renderer.Unenforced
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

// report returns what reports the rules of the refused lists. It does so once, when it is asked:
// there may be thousands of rules, and they change with every turn.
func (c *closedLists) report(eps endpoints) func() []renderer.Unenforced {
	var now []closedList
	for _, x := range c.refused {
		now = append(now, closedList{x, eps.lists[x.ID].List(x.Dir), eps.owner[x.ID]})
	}
	if c.unenforced == nil || !slices.Equal(now, c.reported) {
		c.reported, c.unenforced = now, sync.OnceValue(func() []renderer.Unenforced { return unenforced(now) })
	}
	return c.unenforced
}

// unenforced returns the rules of refused lists.
func unenforced(closed []closedList) (out []renderer.Unenforced) {
	type rule struct {
		origin api.Origin
		owner  string
		share  int
	}
	rules, pods := map[rule]*podsOfRule{}, map[closedList]map[api.PodID]bool{} // many may have one list
	for _, x := range closed {
		of := closedList{Refusal: compile.Refusal{Owner: x.Owner, Share: x.Share}, list: x.list}
		if pods[of] == nil {
			pods[of] = map[api.PodID]bool{}
		}
		pods[of][x.pod] = true
	}
	list := 0
	for of, at := range pods {
		list++
		for _, origins := range of.list.AllOrigins() {
			for _, o := range origins {
				switch r := rules[rule{o, of.Owner, of.Share}]; {
				case r == nil:
					rules[rule{o, of.Owner, of.Share}] = &podsOfRule{of: at, list: list}
				case r.list != list: // a list may have a rule with many others
					r.add(at, list)
				}
			}
		}
	}
	for of, r := range rules {
		reason := fmt.Sprintf("the rules of namespace %s take more than their share of the policy memory, %s (--policy-memory)", of.owner, size(of.share))
		out = append(out, renderer.Unenforced{Origin: of.origin, Class: api.ClassLimit, Reason: reason, Pods: len(r.of)})
	}
	return renderer.SortUnenforced(out)
}

// podsOfRule are the pods that a rule applies to: those of one list, or, once they are its own, of
// several.
type podsOfRule struct {
	of   map[api.PodID]bool
	own  bool
	list int // number of the last one
}

func (r *podsOfRule) add(more map[api.PodID]bool, list int) {
	if !r.own {
		r.of, r.own = maps.Clone(r.of), true
	}
	maps.Copy(r.of, more)
	r.list = list
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

// notInstalled returns what reports all rules of pods as not enforced. What was installed before
// stays in force.
func notInstalled(desired map[api.PodID]renderer.PodConfig) func() []renderer.Unenforced {
	desired = maps.Clone(desired)
	return sync.OnceValue(func() []renderer.Unenforced { return allOf(desired) })
}

func allOf(desired map[api.PodID]renderer.PodConfig) (out []renderer.Unenforced) {
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
