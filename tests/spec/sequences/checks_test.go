package sequences

import (
	"context"
	"maps"
	"net/netip"
	"slices"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness"
)

// questionsPerState bounds the flows that are asked in a state of a larger cluster.
const questionsPerState = 600

// space is what a list asks about beyond the state of the moment.
type space struct{ addrs []netip.Addr }

// spaceOf returns the addresses of all pods of a list, so that those which went are
// asked about, too.
func spaceOf(l list) space {
	all := map[netip.Addr]bool{}
	for _, s := range l.states {
		for _, a := range cluster.FlowSpace(s).Pods {
			all[a] = true
		}
	}
	return space{slices.SortedFunc(maps.Keys(all), netip.Addr.Compare)}
}

// flows returns what is asked in a state.
func (s space) flows(state cluster.State) []api.Flow {
	now := cluster.FlowSpace(state)
	for _, a := range s.addrs {
		if !slices.Contains(now.Pods, a) && !slices.Contains(now.Others, a) {
			now.Others = append(now.Others, a)
		}
	}
	all := slices.Collect(now.All())
	if stride := len(all) / renderertest.Extent(questionsPerState/2, questionsPerState, len(all)+1); stride > 1 {
		all = every(all, stride, len(all))
	}
	return all
}

// every returns every n-th element. Neighbours differ in the port, so that n should
// be no divisor of anything: it is made odd.
func every[T any](all []T, n, first int) []T {
	n |= 1
	var out []T
	for i := first % n; i < len(all); i += n {
		out = append(out, all[i])
	}
	return out
}

// met is a state that was met, and the flows that are asked in it.
type met struct {
	expected *harness.Expected
	flows    []api.Flow
}

// check examines the present state. Of one that was met before it asks about fewer flows, and not
// always about the same.
func (r *runner) check(ctx context.Context) error {
	digest := digestOf(r.now)
	of, known := r.known[digest]
	if !known {
		state := stateOf(r.now, r.silent)
		of = met{r.fleet.Expect(state), r.space.flows(state)}
		r.known[digest] = of
	}
	return r.fleet.Check(ctx, harness.State{
		Expected: of.expected, Objects: storedOf(r.now), Seed: uint64(r.events),
		Flows: every(of.flows, r.stride(!known), r.events), All: true,
	})
}

// stridePerState thins out the flows of a state that is met again, and strideOfSlow those of a
// slow backend also.
const stridePerState, strideOfSlow = 3, 5

// stride returns of how many flows of a state one is asked about.
func (r *runner) stride(first bool) int {
	stride := 1
	if !first {
		stride *= stridePerState
	}
	if r.kind.Slow {
		stride *= strideOfSlow
	}
	if renderertest.Whole() {
		return 1
	}
	return stride
}
