package xdp

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/xdp/bpf"
	"github.com/sluice-net/sluice/renderer/xdp/compile"
)

// What the lists of one pod's direction and of one namespace may take whatever the policy memory is,
// so that no Apply takes long: it writes ten lines of rows in a microsecond, and an address or two.
const (
	listRows           = 1 << 19
	namespaceRows      = 1 << 20
	namespaceAddresses = 1 << 19
)

// limits returns how much of the policy memory the image may use. The tries of addresses have one
// half of it, the rows of lists the other. Old kernels have less: there either may take all but the
// roots of the tries, because what is counted is the most that it can be.
func (o Options) limits() compile.Limits {
	const roots = 3 << 12 // in force, to come, and until nobody reads them any more
	most, _ := o.Dataplane.Limits()
	lines := max(min(most, o.MaxLines)-roots, 1)
	if of := o.PolicyMemory / bpf.LineBytes; of > 0 {
		lines = min(lines, max(int(of/2), 1))
	}
	return compile.Limits{
		// Clusters of a million pods have sets of so many addresses: more memory is for these, too.
		Addresses: compile.Bounds{Namespace: max(namespaceAddresses, lines/2), Total: lines},
		Rows:      compile.Bounds{List: listRows, Namespace: namespaceRows, Total: lines},
	}
}

// closedLists holds the lists that the image closes, and the report about their rules.
type closedLists struct {
	refused    []compile.Refusal
	reported   []closedList // whose rules are in unenforced
	unenforced func() []renderer.Unenforced
}

// update records which lists the image closes. It returns the endpoints as the image enforces them:
// blocked in the directions whose lists are closed.
func (c *closedLists) update(image *compile.Image, eps map[uint32]compile.Endpoint) map[uint32]compile.Endpoint {
	out := maps.Clone(eps)
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

// closedList is a list that the image closes.
type closedList struct {
	compile.Refusal
	list *renderer.RuleList
	pod  api.PodID
}

// report returns what reports the rules of the closed lists. It does so once, when it is asked: there
// may be thousands of rules.
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

// unenforced returns the rules of closed lists.
func unenforced(closed []closedList) (out []renderer.Unenforced) {
	type rule struct {
		origin api.Origin
		owner  string
		compile.Reason
	}
	rules, pods := map[rule]*podsOfRule{}, map[closedList]map[api.PodID]bool{} // many may have one list
	for _, x := range closed {
		of := closedList{Refusal: compile.Refusal{Owner: x.Owner, Reason: x.Reason}, list: x.list}
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
				switch r := rules[rule{o, of.Owner, of.Reason}]; {
				case r == nil:
					rules[rule{o, of.Owner, of.Reason}] = &podsOfRule{pods: at, list: list}
				case r.list != list: // a list may have a rule with many others
					r.add(at, list)
				}
			}
		}
	}
	for of, r := range rules {
		out = append(out, renderer.Unenforced{Origin: of.origin, Class: api.ClassLimit, Reason: reasonOf(of.owner, of.Reason), Pods: len(r.pods)})
	}
	return renderer.SortUnenforced(out)
}

// reasonOf says why a list of a namespace is closed, and what helps.
func reasonOf(namespace string, r compile.Reason) string {
	switch {
	case r.Of == compile.Addresses:
		return fmt.Sprintf("the policies of namespace %s name more than %d addresses, so those of its lists that name most are closed: select fewer peers, or raise --policy-memory", namespace, r.Max)
	case r.One:
		return fmt.Sprintf("a list of the policies of namespace %s may take more than %s of policy memory alone, so it is closed: name fewer ports or peers for one pod", namespace, size(r.Max))
	}
	return fmt.Sprintf("the lists of the policies of namespace %s may take more than %s of policy memory, so the largest are closed: name fewer ports or peers, or raise --policy-memory", namespace, size(r.Max))
}

// podsOfRule are the pods that a rule applies to: those of one list, or, once they are its own, of
// several.
type podsOfRule struct {
	pods map[api.PodID]bool
	own  bool
	list int // number of the last one
}

func (r *podsOfRule) add(more map[api.PodID]bool, list int) {
	if !r.own {
		r.pods, r.own = maps.Clone(r.pods), true
	}
	maps.Copy(r.pods, more)
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
