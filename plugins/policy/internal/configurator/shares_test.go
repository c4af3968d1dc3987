package configurator

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
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

// TestTenantsCloseLargestListsOfLargestNamespace also checks that they are reported, and
// opened again when they fit.
func TestTenantsCloseLargestListsOfLargestNamespace(t *testing.T) {
	f := newFixture(t)
	f.c.shares.share, f.c.shares.node = 100, 150
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

// TestTenantsCountNamedRules: rules of admin policies do not count, and a list over the limit
// is closed before it is generated.
func TestTenantsCountNamedRules(t *testing.T) {
	f := newFixture(t)
	f.c.shares.share = 200
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
