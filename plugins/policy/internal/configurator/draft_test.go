package configurator

import (
	"fmt"
	"testing"

	"github.com/sluice-net/sluice/api"
)

// slow returns a fixture whose transactions generate only a few rules of a large list.
func slow(t *testing.T) *fixture {
	f := newFixture(t)
	f.c.batch, f.c.steps = 10, 7
	t.Cleanup(f.c.Abandon)
	return f
}

// TestTxnGeneratesALargeListInParts: meanwhile the pod has its rules, a new one is blocked, and
// others are served by each transaction. In the end the list is the one that is generated at once.
func TestTxnGeneratesALargeListInParts(t *testing.T) {
	f := slow(t)
	f.commit(true, configure(1, many("old", 3)))
	large := many("large", 60)
	f.commit(false, configure(1, large), configure(2, many("another", 50)))
	parts := 0
	for ; f.c.Waiting() > 0; parts++ {
		if n := len(f.config(1).Egress.Rules()); n != 5 && n != 62 {
			t.Fatalf("after %d transactions the pod has %d rules", parts, n)
		}
		if n := len(f.config(2).Egress.Rules()); !f.isClosed(2) && n != 52 {
			t.Fatalf("after %d transactions the new pod has %d rules", parts, n)
		}
		f.commit(false, configure(3, many(fmt.Sprint("small", parts), 2)))
		if f.isClosed(3) || len(f.config(3).Egress.Rules()) != 4 {
			t.Fatalf("another pod waits after %d transactions", parts)
		}
		if parts > 1000 {
			t.Fatal("it takes forever")
		}
	}
	if want := generate(api.Ingress, []*api.ContivPolicy{large}, true); parts < 5 || len(f.config(1).Egress.Rules()) != want.rules.Len() {
		t.Errorf("after %d transactions the pod has %d rules, want %d", parts, len(f.config(1).Egress.Rules()), want.rules.Len())
	}
	for i, r := range generate(api.Ingress, []*api.ContivPolicy{large}, true).rules.Rules() {
		if f.config(1).Egress.Rules()[i] != r {
			t.Errorf("rule %d is %s, want %s", i, f.config(1).Egress.Rules()[i], r)
		}
	}
}

// TestTxnFinishesWhatChangesAllTheTime: policies that change in every transaction are applied some
// time, and keep no other large list from it.
func TestTxnFinishesWhatChangesAllTheTime(t *testing.T) {
	f := slow(t)
	f.commit(true, configure(1, many("old", 3)), configure(2, many("old", 3)))
	f.commit(false, configure(1, many("restless", 60)), configure(2, many("patient", 60)))
	changed, applied, n := 0, 0, 0
	for i := range 200 {
		f.commit(false, configure(1, many(fmt.Sprint("restless", i), 40+i%20)))
		if now := len(f.config(1).Egress.Rules()); now != n {
			n = now
			changed++
		}
		if applied == 0 && len(f.config(2).Egress.Rules()) == 62 {
			applied = i
		}
	}
	if changed < 3 || applied == 0 || applied > 100 {
		t.Errorf("the list that changes was applied %d times, and the other one after %d transactions", changed, applied)
	}
}

// TestTxnGivesUpWhatIsInTheWay: a pod that leaves or a resync ends what is generated for it.
func TestTxnGivesUpWhatIsInTheWay(t *testing.T) {
	f := slow(t)
	f.commit(true, configure(1, many("old", 3)))
	f.commit(false, configure(1, many("large", 60)))
	if f.c.draft == nil {
		t.Fatal("nothing is generated in parts")
	}
	f.commit(false, func(x *Txn) { x.Remove(podID(1)) })
	if f.c.draft != nil || f.c.Waiting() != 0 {
		t.Error("what is generated for a pod that is gone is not given up")
	}
	f.commit(false, configure(2, many("large", 60)))
	f.commit(true, configure(2, many("other", 70)))
	if f.c.draft != nil || f.c.Waiting() != 0 || len(f.config(2).Egress.Rules()) != 72 {
		t.Error("a resync does not end with everything applied")
	}
}
