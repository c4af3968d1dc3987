package vpp

import (
	"testing"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// TestVPPKeepsEstablishedFlows tightens a policy of a cluster that wants open flows to
// live until they end.
func TestVPPKeepsEstablishedFlows(t *testing.T) {
	l := newLabWith(t, vpptest.NewNetwork(vpptest.Launch(t)), "node-1", acl.Options{Flows: acl.Flows{Established: acl.Keep}})
	w := shop(t)
	l.apply(w.resync())
	f, other := l.tcp("10.10.1.10", "10.10.1.20", 8081), l.tcp("10.10.1.11", "10.10.1.20", 8081)
	if !f.opens() || !f.lives() {
		t.Fatal("the flow does not open")
	}
	l.apply(model.Changes{Deltas: moved(w, "shop", "catalog", api.Ingress).since(w)})
	if !f.lives() {
		t.Error("the open flow is cut")
	}
	if other.passes(other.syn) {
		t.Error("a new flow opens")
	}
	l.Do("clear acl-plugin sessions")
	vpptest.Eventually(t, "the client to be forgotten", func() bool { return !f.passes(f.ack) })
	if f.passes(f.ans) || f.passes(f.ack) {
		t.Error("a flow goes on that neither end may begin, and that VPP has forgotten")
	}
	l.compare(t)
}

// TestVPPGrace restarts VPP beneath open flows.
func TestVPPGrace(t *testing.T) {
	const grace = 20 * time.Second
	l := newLabWith(t, vpptest.NewNetwork(vpptest.Launch(t)), "node-1", acl.Options{Flows: acl.Flows{Grace: grace}})
	w := shop(t)
	l.apply(w.resync())
	out, in := l.tcp("10.10.1.40", "203.0.113.10", 443), l.tcp("198.51.100.7", "10.10.0.10", 8443)
	for _, f := range []tcpFlow{out, in} {
		if !f.opens() || !f.lives() {
			t.Fatalf("%v does not open", f.syn)
		}
	}
	l.Stop()
	l.Start()
	*l.Network = *vpptest.NewNetwork(l.Process)
	l.Grow(l.twin.Switch)
	want := embedded(t, l.twin.Switch)
	vpptest.Eventually(t, "everything to be enforced", func() bool {
		s := l.real.ACL.State()
		return s.Err == nil && len(s.Pending) == 0 && len(l.real.ACL.Endpoints()) > 0 && len(contentsOf(t, l.Conn).ACLs) == len(want.ACLs)
	})
	if out.passes(out.ans) {
		t.Error("an answer passes before the pod said anything")
	}
	for _, f := range []tcpFlow{out, in} {
		if !f.lives() {
			t.Errorf("%v does not go on in grace", f.syn)
		}
	}
	before := l.inputTag(t)
	vpptest.Eventually(t, "the grace to be over", func() bool { return l.inputTag(t) != before })
	for _, f := range []tcpFlow{out, in} {
		if !f.lives() {
			t.Errorf("%v was cut by the end of the grace", f.syn)
		}
	}
	late := l.tcp("10.10.1.40", "203.0.113.10", 443)
	late.ack.SrcPort, late.ans.DstPort = 41001, 41001
	if !late.passes(late.ack) || late.passes(late.ans) {
		t.Error("after the grace a flow of which nothing is known goes on")
	}
	l.compare(t)
}

// inputTag returns the tag of the input list.
func (l *lab) inputTag(t *testing.T) string {
	t.Helper()
	in := contentsOf(t, l.Conn).Bound[acl.UplinkTag].In
	if len(in) != 1 {
		t.Fatalf("the uplink's input list is %v", in)
	}
	return in[0]
}
