package configurator

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// in returns a change that configures a pod of a namespace.
func in(namespace string, pod int, policies ...*api.ContivPolicy) func(*Txn) {
	return func(t *Txn) {
		t.Configure(api.PodID{Namespace: namespace, Name: podID(pod).Name}, podAddrs(pod), policies, nil)
	}
}

// rules is how many rules the ingress of a pod has.
func (f *fixture) rules(namespace string, pod int) int {
	return len(f.r.Pods()[api.PodID{Namespace: namespace, Name: podID(pod).Name}].Egress.Rules())
}

// TestSharesCloseLargestListsOfLargestNamespace also checks that they are reported, and
// opened again when they fit.
func TestSharesCloseLargestListsOfLargestNamespace(t *testing.T) {
	f := newFixture(t)
	f.c.shares.bounds[0].namespace, f.c.shares.bounds[0].node = 100, 150
	f.commit(true, in("large", 1, many("a", 70)), in("large", 2, many("b", 60)), in("large", 3, many("c", 10)), in("small", 4, many("d", 40)))
	if f.rules("large", 1) != 1 || f.rules("large", 2) != 1 {
		t.Error("lists of more than their part are not closed")
	}
	if f.rules("large", 3) != 12 || f.rules("small", 4) != 42 {
		t.Error("a small list, or one of another namespace, is closed")
	}
	refused := f.c.Unenforced()[0].Rules
	if len(refused) != 2 || refused[0].Class != api.ClassLimit || !strings.Contains(refused[0].Reason, "namespace large name more than 100 pairs") {
		t.Errorf("it is reported as %+v", refused)
	}
	f.commit(false, func(x *Txn) { x.Remove(api.PodID{Namespace: "large", Name: podID(2).Name}) })
	if f.rules("large", 1) != 72 || len(f.c.Unenforced()[0].Rules) != 0 {
		t.Errorf("what fits now is closed: %v", f.c.Unenforced())
	}
	f.commit(false, in("other", 5, many("e", 90)))
	if f.rules("large", 1) != 1 || f.rules("other", 5) != 1 || f.rules("large", 3) != 12 || f.rules("small", 4) != 42 {
		t.Error("more than the node has room for does not close the largest lists, or others too")
	}
	f.commit(false, func(x *Txn) {
		x.Remove(api.PodID{Namespace: "other", Name: podID(5).Name})
		x.Remove(api.PodID{Namespace: "small", Name: podID(4).Name})
	})
	if f.rules("large", 1) != 72 || len(f.c.Unenforced()[0].Rules) != 0 {
		t.Error("a list is closed although all together are fewer than one namespace may have")
	}
}

// TestSharesCountNamedRules: rules of admin policies do not count, and a list over the limit
// is closed before it is generated.
func TestSharesCountNamedRules(t *testing.T) {
	f := newFixture(t)
	f.c.shares.bounds[0].namespace = 200
	admin := many("admin", 300)
	admin.Tier, admin.IsolatesIngress = api.TierAdmin, false
	for i := range admin.Ingress {
		admin.Ingress[i].Action = api.RuleDeny
	}
	f.commit(true, in("shop", 1, admin), in("shop", 2, admin, many("a", 20)))
	if n := len(f.c.Unenforced()[0].Rules); n != 0 || f.rules("shop", 1) < 150 || f.rules("shop", 2) < 150 {
		t.Errorf("%d rules are refused for what an administrator wrote", n)
	}
	same := many("same", 90)
	again := many("again", 90)
	third := many("third", 90)
	f.commit(false, in("shop", 2, same, again, third)) // 90 rules, of 270 pairs
	if f.rules("shop", 2) != 1 || len(f.c.Unenforced()[0].Rules) != 3 || !strings.Contains(f.c.Unenforced()[0].Rules[0].Reason, "more than 200 pairs") {
		t.Errorf("a list of 270 pairs has %d rules, reported as %v", f.rules("shop", 2), f.c.Unenforced()[0].Rules)
	}
	f.commit(false, in("shop", 2, same, again))
	if f.rules("shop", 2) != 92 || len(f.c.Unenforced()[0].Rules) != 0 {
		t.Errorf("a list of 180 pairs has %d rules, refused is %v", f.rules("shop", 2), f.c.Unenforced()[0].Rules)
	}
}

// expanding is a renderer of a dataplane without address sets.
type expanding struct {
	renderer.Renderer
	perPod bool
}

func (x expanding) Expansion() (namespace, node int, perPod bool) { return 100, 150, x.perPod }

// TestSharesBoundEntries: rules times members are bounded if a dataplane has no address sets, as
// the members are now, and only for the pods of the namespace that takes most.
func TestSharesBoundEntries(t *testing.T) {
	for _, perPod := range []bool{false, true} {
		r := renderertest.NewRecorder("test", t)
		f := &fixture{t: t, r: r, c: New(Options{Renderers: []renderer.Renderer{expanding{r, perPod}}})}
		var members []netip.Prefix
		for i := range 50 {
			members = append(members, netip.PrefixFrom(podAddrs(100 + i)[0], 32))
		}
		large := []*api.ContivPolicy{many("a", 3)}
		f.commit(true, in("large", 1, large...), in("small", 4, many("own", 1)), func(x *Txn) { x.UpdateSet(300, members, nil) })
		if f.rules("large", 1) != 1 || f.rules("small", 4) != 3 {
			t.Errorf("per pod %t: of 150 entries the list has %d rules, and another namespace's %d", perPod, f.rules("large", 1), f.rules("small", 4))
		}
		refused := f.c.Unenforced()[0].Rules
		if len(refused) != 1 || !strings.Contains(refused[0].Reason, "namespace large take more than 100 entries") {
			t.Errorf("per pod %t: it is reported as %+v", perPod, refused)
		}
		f.commit(false, func(x *Txn) { x.UpdateSet(300, nil, members[20:]) })
		if f.rules("large", 1) != 5 || len(f.c.Unenforced()[0].Rules) != 0 {
			t.Errorf("per pod %t: of 60 entries the list has %d rules", perPod, f.rules("large", 1))
		}
		f.commit(false, in("large", 2, large...))
		if got := f.rules("large", 1); (got == 1) != perPod {
			t.Errorf("per pod %t: shared by two pods the list has %d rules", perPod, got)
		}
		f.commit(false, func(x *Txn) { x.UpdateSet(300, members[20:], nil) })
		if got := f.rules("large", 1); got != 1 {
			t.Errorf("per pod %t: of 150 entries again the list has %d rules", perPod, got)
		}
	}
}
