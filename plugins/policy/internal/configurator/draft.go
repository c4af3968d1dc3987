package configurator

import (
	"iter"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
)

// draftSteps is how much of a large list one transaction generates, in spans and rules: a list of a
// million rules takes 32 transactions of some 15 ms.
const draftSteps = 2 * BatchPairs

// draft is the generation of the large lists of a pod in several transactions. The generator runs
// as a coroutine, and nothing else runs meanwhile.
type draft struct {
	pod    api.PodID
	change podChange
	steps  int // left in this transaction
	next   func() (struct{}, bool)
	stop   func()
	lists  [2]*finished // what is generated, by direction
}

// finished is a generated list with its key, which takes as long as the list.
type finished struct {
	*generated
	rules *renderer.RuleList
	key   listKey
}

// abandoned ends the coroutine of a draft.
type abandoned struct{}

// newDraft begins to generate the lists of a pod, but for those that are to be closed.
func newDraft(pod api.PodID, change podChange, closed reasons, allowNode bool) *draft {
	d := &draft{pod: pod, change: change}
	policies := canonical(change.policies)
	d.next, d.stop = iter.Pull(func(yield func(struct{}) bool) {
		defer func() {
			if r := recover(); r != nil && r != (abandoned{}) {
				panic(r)
			}
		}()
		pause := func(n int) {
			if d.steps -= n; d.steps <= 0 && !yield(struct{}{}) {
				panic(abandoned{})
			}
		}
		for _, direction := range []api.Direction{api.Ingress, api.Egress} {
			if closed[direction] == "" {
				d.lists[direction] = finish(generateWith(pause, "", direction, policies, allowNode, change.shared...), pause)
			}
		}
	})
	return d
}

// work continues, and returns whether everything is generated.
func (d *draft) work(steps int) bool {
	d.steps = steps
	_, more := d.next()
	return !more
}

// finish computes the key of a list. It calls pause between small parts of the work.
func finish(g *generated, pause func(steps int)) *finished {
	if g == nil {
		return nil
	}
	rules := renderer.NewRuleList(g.rules, g.origins, pause)
	return &finished{g, rules, listKey{rules.Digest(), digestOrigins(g.origins, g.refused, pause)}}
}

// drafted returns the change of a pod that can be applied now, if any: that which is wanted, or an
// earlier one whose lists were begun before. What was begun is finished, else the lists of a pod
// whose policies change all the time would never be applied.
func (c *Configurator) drafted(pod api.PodID, change podChange) (podChange, bool) {
	if c.draft == nil || c.draft.pod != pod || !slices.Equal(c.draft.change.ips, change.ips) {
		c.Abandon()
		p := &profile{policies: canonical(change.policies), shared: change.shared}
		p.measure()
		c.draft = newDraft(pod, change, c.shares.tooLarge(pod.Namespace, p), c.interner.allowNode)
	}
	ready := c.draft.work(c.steps)
	return c.draft.change, ready
}

// Abandon gives up a list that is generated in several transactions. The pod keeps waiting. It must
// be called when no transaction follows.
func (c *Configurator) Abandon() {
	if c.draft != nil {
		c.draft.stop()
		c.draft = nil
	}
}

// of returns the list of some policies in one direction, if it was generated.
func (d *draft) of(policies []*api.ContivPolicy, shared []api.Sharing, direction api.Direction) *finished {
	if d == nil || !slices.Equal(canonical(d.change.policies), policies) || !slices.EqualFunc(d.change.shared, shared, api.Sharing.Equal) {
		return nil
	}
	return d.lists[direction]
}

func (p podChange) same(o podChange) bool {
	return idOfSlice(p.policies) == idOfSlice(o.policies) && slices.Equal(p.ips, o.ips) && slices.EqualFunc(p.shared, o.shared, api.Sharing.Equal)
}
