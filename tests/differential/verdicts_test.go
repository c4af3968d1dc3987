package differential

import (
	"fmt"
	"iter"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/node"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/tests/cluster"
)

// evaluation says whether the first packet of a flow is allowed.
type evaluation func(api.Flow) bool

// byFabric asks with packets.
func byFabric(f *node.Fabric) evaluation {
	return func(flow api.Flow) bool { return f.Ask(flow).Verdict == api.Permit }
}

// difference returns the first flow on which two evaluations differ.
func difference(flows iter.Seq[api.Flow], a, b evaluation) (api.Flow, bool) {
	for f := range flows {
		if a(f) != b(f) {
			return f, true
		}
	}
	return api.Flow{}, false
}

// disagreement explains a flow on which the product differs from the oracle.
func disagreement(f api.Flow, o *oracle.Oracle, w node.Walk, s cluster.State) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\nthe dataplane: %s, %s\n", f, w.Verdict, w.Reason)
	for _, v := range w.Visits {
		fmt.Fprintf(&b, "node %s: %s\n", v.Node, v.Trace)
	}
	fmt.Fprintf(&b, "the oracle:\n%s\n%s", o.Verdict(f), manifests(s))
	return b.String()
}

// isLong says whether everything is to be asked, however long that takes.
func isLong() bool { return os.Getenv("SLUICE_LONG") == "1" }

// flowsOf returns all flows of a state when they are few enough, else as many as
// the bound says, drawn by a seed.
func flowsOf(s cluster.State, bound int, seed uint64) iter.Seq[api.Flow] {
	space := cluster.FlowSpace(s)
	if isLong() || sizeOf(space) <= bound {
		return space.All()
	}
	return slices.Values(space.Random(cluster.NewRand(seed), bound))
}

// sizeOf returns how many flows a space has.
func sizeOf(s cluster.Space) int {
	var pods, others [2]int
	for _, a := range s.Pods {
		pods[family(a)]++
	}
	for _, a := range s.Others {
		others[family(a)]++
	}
	pairs := 0
	for f := range pods {
		pairs += pods[f]*pods[f] + 2*pods[f]*others[f]
	}
	return pairs * (1 + 3*len(s.Ports))
}

func family(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func TestTheSizeOfASpaceIsTheNumberOfItsFlows(t *testing.T) {
	for seed := range uint64(20) {
		s := cluster.Random(seed, cluster.Small())
		if got, want := sizeOf(cluster.FlowSpace(s)), len(cluster.Flows(s)); got != want {
			t.Errorf("seed %d: %d, want %d", seed, got, want)
		}
	}
}
