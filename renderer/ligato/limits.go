package ligato

import (
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// The reasons that are told.
const (
	reasonSCTP = "the model of vpp-agent cannot name ports of SCTP"
	reasonSize = "the rules of a pod, with their sets expanded, do not fit into a value of etcd"
)

// limits knows what of the rules that the renderer was told cannot be published.
type limits struct {
	pods     map[api.PodID]podLists // that have rules with such ports
	oversize []renderer.Unenforced  // of the newest commit that got so far
	answer   []renderer.Unenforced  // of Unenforced
	current  bool                   // answer is what it must be
}

// podLists are the two lists of a pod, as far as they have a rule with a port that cannot
// be named.
type podLists struct {
	pod   api.PodID
	lists [2]*renderer.RuleList
}

func newLimits() limits { return limits{pods: make(map[api.PodID]podLists)} }

// lossy returns the list if it has a rule with a port that cannot be named, else nil.
func lossy(l *renderer.RuleList) *renderer.RuleList {
	if slices.ContainsFunc(l.Rules(), namesLostPort) {
		return l
	}
	return nil
}

// told takes over the pods of a transaction, in order.
func (x *limits) told(resync bool, pods []podLists) {
	if resync {
		x.current = x.current && len(x.pods) == 0
		clear(x.pods)
	}
	for _, p := range pods {
		if x.pods[p.pod].lists == p.lists {
			continue
		}
		x.current = false
		if x.pods[p.pod] = p; p.lists == [2]*renderer.RuleList{} {
			delete(x.pods, p.pod)
		}
	}
}

// refused takes over what a commit had to refuse. What is said of one rule several times
// is said once, of all the pods.
func (x *limits) refused(said []renderer.Unenforced) {
	pods := make(map[renderer.Unenforced]int)
	for _, u := range said {
		n := u.Pods
		u.Pods = 0
		pods[u] += n
	}
	rules := unenforced(pods)
	x.current = x.current && slices.Equal(x.oversize, rules)
	x.oversize = rules
}

// unenforced lists rules with the number of their pods.
func unenforced(pods map[renderer.Unenforced]int) (out []renderer.Unenforced) {
	for u, n := range pods {
		u.Pods = n
		out = append(out, u)
	}
	return renderer.SortUnenforced(out)
}

// Unenforced implements renderer.Reporter.
func (r *Renderer) Unenforced() []renderer.Unenforced {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.limits.unenforced()
}

func (x *limits) unenforced() []renderer.Unenforced {
	if x.current {
		return x.answer
	}
	pods := make(map[renderer.Unenforced]int)
	for _, p := range x.pods {
		for o := range p.origins() {
			pods[renderer.Unenforced{Origin: o, Class: api.ClassStack, Reason: reasonSCTP}]++
		}
	}
	now := renderer.SortUnenforced(slices.Concat(x.oversize, unenforced(pods)))
	if x.current = true; !slices.Equal(now, x.answer) {
		x.answer = now
	}
	return x.answer
}

// origins returns where the rules that cannot be published come from.
func (p podLists) origins() map[api.Origin]bool {
	out := make(map[api.Origin]bool)
	for _, l := range p.lists {
		for i, r := range l.Rules() {
			if namesLostPort(r) {
				for _, o := range l.Origins(i) {
					out[o] = true
				}
			}
		}
	}
	return out
}
