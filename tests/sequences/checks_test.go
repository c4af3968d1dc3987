package sequences

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/explain/reason"
	"github.com/sluice-net/sluice/internal/oracle"
	"github.com/sluice-net/sluice/renderer/renderertest"
	"github.com/sluice-net/sluice/tests/cluster"
	"github.com/sluice-net/sluice/tests/harness"
)

// expected is what must be true in one state, however it came about.
type expected struct {
	oracle    *oracle.Oracle
	questions []question
	installed map[string]harness.Installed // of a new fleet, by node
}

// question is a flow and what becomes of it.
type question struct {
	flow    api.Flow
	allowed bool
}

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

// expected returns what must be true now, and whether it is the first time that
// somebody asks. Then a new fleet is told the state as a whole.
func (r *runner) expected(ctx context.Context) (want expected, first bool, err error) {
	digest := digestOf(r.now)
	if want, ok := r.known[digest]; ok {
		return want, false, nil
	}
	state := stateOf(r.now, r.silent)
	want = expected{oracle: oracle.New(state, oracle.AllowNodeTraffic(!r.denyNode)), installed: map[string]harness.Installed{}}
	for _, f := range r.space.flows(state) {
		want.questions = append(want.questions, question{f, want.oracle.Allowed(f)})
	}
	fresh, err := r.newFleet()
	if err != nil {
		return want, true, fmt.Errorf("a new fleet: %w", err)
	}
	err = fresh.Apply(ctx, told(wholly(r.sequence, r.now, true)))
	for _, name := range fresh.Names() {
		installed, inspected := fresh.Node(name).Inspect(ctx)
		want.installed[name], err = installed, errors.Join(err, inspected)
	}
	if err = errors.Join(err, fresh.Close()); err != nil {
		return want, true, fmt.Errorf("a new fleet: %w", err)
	}
	r.known[digest] = want
	return want, true, nil
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

// verdicts asks the fleet: all flows of a state that is new, and of one that is not
// always others.
func (r *runner) verdicts(want expected, first bool) []finding {
	questions := every(want.questions, r.stride(first), r.events)
	var wrong []question
	for _, q := range questions {
		if r.fleet.Does(q.flow, q.allowed) != q.allowed {
			wrong = append(wrong, q)
		}
	}
	if len(wrong) == 0 {
		return nil
	}
	q := wrong[0]
	return []finding{{checkVerdicts, fmt.Sprintf("%d of %d flows are wrong, first %s, which should be allowed: %t\n%s%s",
		len(wrong), len(questions), q.flow, q.allowed, r.fleet.Trace(q.flow), reason.Of(want.oracle.Verdict(q.flow)))}}
}

// inspect compares what is installed with what a new fleet has, and looks for
// references that lead nowhere.
func (r *runner) inspect(ctx context.Context, want expected) []finding {
	var out []finding
	for _, name := range r.fleet.Names() {
		node := r.fleet.Node(name)
		got, err := node.Inspect(ctx)
		if err != nil {
			out = append(out, finding{checkInstalled, fmt.Sprintf("node %s: %v", name, err)})
		} else if diff := got.Diff(want.installed[name]); diff != "" {
			out = append(out, finding{checkInstalled, fmt.Sprintf("node %s (-new fleet +this one)\n%s", name, diff)})
		}
		if dangling := node.Dangling(); len(dangling) > 0 {
			out = append(out, finding{checkReferences, fmt.Sprintf("node %s: %s", name, strings.Join(dangling, "; "))})
		}
	}
	return out
}

// again tells what is there already, as changes and as a whole.
func (r *runner) again(ctx context.Context) []finding {
	var out []finding
	for _, resync := range []bool{false, true} {
		before := r.fleet.Operations()
		if err := r.fleet.Apply(ctx, told(wholly(r.sequence, r.now, resync))); err != nil {
			return append(out, finding{checkApply, err.Error()})
		}
		if n := r.fleet.Operations() - before; n != 0 {
			out = append(out, finding{checkOperations, fmt.Sprintf("telling it again, as a whole: %t, took %d", resync, n)})
		}
	}
	return out
}
