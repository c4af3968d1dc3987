package bench

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/analysis/oracle"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// flowsPerCheck is the size of the sample. It is drawn anew, but the same, in every
// run.
const flowsPerCheck = 400

// check compares what the subject enforces with what the oracle says of the world.
// It is the condition for a time to count. Every second flow is about one of the
// objects that are given: those that the benchmark changed.
func (s *subject) check(tb testing.TB, w world, focus ...any) {
	tb.Helper()
	s.checkFlows(tb, w, flowsPerCheck, focus...)
}

// checkFlows does so with a sample of another size, for worlds in which the oracle needs
// seconds for a flow.
func (s *subject) checkFlows(tb testing.TB, w world, flows int, focus ...any) {
	tb.Helper()
	status := s.plugin.Status()
	if !status.InSync() || !status.Synced {
		tb.Errorf("the plugin is not in sync: %+v", status)
	}
	state := w.state()
	sample := newSampler(state, s.node)
	if s.recorder != nil && len(s.recorder.Pods()) != len(sample.local) {
		tb.Errorf("%d pods are installed, %d are local and have an address", len(s.recorder.Pods()), len(sample.local))
	}
	truth := oracle.New(state)
	local := sample.addresses()
	judge := s.judge(local)
	allowed, wrong, closed := 0, 0, 0
	for range flows {
		f := sample.flow(focus)
		want := expected(truth, local, f)
		if want == api.Permit {
			allowed++
		}
		got := judge(f)
		if n, ok := s.backend.(backends.Narrow); ok && got == api.Deny && n.Narrows(f) {
			continue // session rules cannot express what permits it
		}
		if got == api.Deny && want == api.Permit && status.Unenforced > 0 {
			closed++ // perhaps by a policy that is beyond a limit; such a node is not more open than the oracle
			continue
		}
		if got != want {
			if wrong++; wrong <= 5 {
				tb.Errorf("%s: %s is %s, the oracle says %s", s.kind, f, got, want)
			}
		}
	}
	if wrong > 0 {
		tb.Errorf("%d of %d flows are decided wrongly", wrong, flows)
	}
	if status.Unenforced > 0 {
		tb.Logf("%d policies are beyond limits of the dataplane: %d of %d flows are closed", status.Unenforced, closed, flows)
	}
	if allowed < flows/100 || allowed > flows*99/100 {
		tb.Errorf("the sample says little: %d of %d flows are allowed", allowed, flows)
	}
}

// expected is the part of the oracle's verdict that the ends on this node decide.
func expected(o *oracle.Oracle, local map[netip.Addr]api.PodID, f api.Flow) api.Action {
	v := o.Verdict(f)
	_, src := local[f.Src]
	_, dst := local[f.Dst]
	if src && !v.Egress.Allowed || dst && !v.Ingress.Allowed {
		return api.Deny
	}
	return api.Permit
}
