package renderertest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
)

// expected is what must be true in one world, independently of history.
type expected struct {
	verdicts  []question
	installed string // of a new subject; empty when subjects cannot be inspected
}

// question is a flow and its expected verdict.
type question struct {
	flow api.Flow
	want api.Action
}

// expected returns what must be true in the current world. The first time, it sends the world to a
// new subject.
func (r *runner) expected() (expected, error) {
	digest := r.model.Dump()
	if want, ok := r.known[digest]; ok {
		return want, nil
	}
	var want expected
	holders := r.world.holders()
	for _, f := range r.flows {
		// A dataplane delivers to one pod, so flows of an address that is moving between pods have
		// no verdict.
		if holders[f.Src] < 2 && holders[f.Dst] < 2 {
			want.verdicts = append(want.verdicts, question{f, r.model.Verdict(f)})
		}
	}
	fresh := r.newSubject()
	err := applyEvent(fresh.Renderer(), nil, r.everything(true))
	if i, ok := fresh.(Inspector); ok && err == nil {
		want.installed, err = i.Installed()
	}
	if closed := shut(fresh); err == nil {
		err = closed
	}
	if err != nil {
		return want, fmt.Errorf("a new subject: %w", err)
	}
	r.known[digest] = want
	return want, nil
}

// everything returns the current world as an event.
func (r *runner) everything(resync bool) event {
	return event{Resync: resync, Deltas: r.sequence.all(r.world)}
}

// verdicts checks the verdicts of the dataplane.
func (r *runner) verdicts(want expected) []finding {
	wrong := 0
	var text strings.Builder
	judge(r.subject, want.verdicts, func(q question) api.Flow { return q.flow })
	for _, q := range want.verdicts {
		if got, ok := accepts(r.subject, q.flow, q.want); !ok {
			if wrong++; wrong <= 5 {
				fmt.Fprintf(&text, "\n  %s: the stack says %s, want %s", q.flow, got, q.want)
			}
		}
	}
	if wrong == 0 {
		return nil
	}
	return []finding{{checkVerdicts, fmt.Sprintf("%d of %d flows are wrong:%s", wrong, len(want.verdicts), text.String())}}
}

// inspect checks the content of the dataplane.
func inspect(s Subject, want expected) []finding {
	i, ok := s.(Inspector)
	if !ok {
		return nil
	}
	var out []finding
	if got, err := i.Installed(); err != nil {
		out = append(out, finding{checkInstalled, err.Error()})
	} else if got != want.installed {
		out = append(out, finding{checkInstalled, "(-new subject +this one)\n" + cmp.Diff(want.installed, got)})
	}
	for _, d := range i.Dangling() {
		out = append(out, finding{checkReferences, d})
	}
	return out
}

// again sends the current state again, as changes and as a resync.
func (r *runner) again() []finding {
	var out []finding
	for _, resync := range []bool{false, true} {
		before := r.subject.Operations()
		if err := applyEvent(r.subject.Renderer(), r.world, r.everything(resync)); err != nil {
			return append(out, finding{checkCommit, err.Error()})
		}
		if n := r.subject.Operations() - before; n != 0 {
			out = append(out, finding{checkOperations, fmt.Sprintf("telling it again, as a whole: %t, took %d", resync, n)})
		}
	}
	return out
}

// flowsOf returns the flows between the addresses of a sequence and the fixture addresses without a
// pod, with a pod at one end or both.
func flowsOf(s Sequence[ref, content]) []api.Flow {
	pods := map[netip.Addr]bool{}
	for _, w := range s.States {
		for _, c := range w {
			for _, ip := range c.pod.IPs {
				pods[ip] = true
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(allFlows), func(f api.Flow) bool {
		src, dst := pods[f.Src], pods[f.Dst]
		inside := func(a netip.Addr, has bool) bool { return has || slices.Contains(outside, a) }
		return !src && !dst || !inside(f.Src, src) || !inside(f.Dst, dst)
	})
}
