package acl_test

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// newSplit is newSubject with both directions applied at the interfaces of pods.
func newSplit(t testing.TB) *subject {
	s := newSubject(t, renderertest.PodIDs...)
	s.options = sluiceacl.Options{Orientation: sluiceacl.Split, Flows: sluiceacl.Flows{Established: sluiceacl.Keep}}
	if err := s.Restart(); err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformanceOfSplit(t *testing.T) {
	renderertest.Run(t, func(t testing.TB) renderertest.Subject { return newSplit(t) })
}

func TestSplitKeepsEstablishedFlowsOnly(t *testing.T) {
	_, err := sluiceacl.New(sluiceacl.Options{Orientation: sluiceacl.Split})
	if err == nil || !strings.Contains(err.Error(), "established: keep") {
		t.Errorf("the error is %v", err)
	}
}

// TestSplitIsAtInterfaceOfPod restricts only what a pod sends: the input of the pod has
// rules, its output and the uplink have none.
func TestSplitIsAtInterfaceOfPod(t *testing.T) {
	s := newSplit(t)
	defer s.closing(t)
	web := api.ContivRule{Action: api.Permit, Protocol: api.TCP, DstPort: api.Port(80)}
	l := renderer.NewRuleList([]api.ContivRule{web, {Action: api.Deny}}, nil)
	changes := renderer.Changes{Resync: true}
	pod := renderertest.PodIDs[0]
	addr := netip.MustParseAddr("10.1.0.1")
	changes.Render(pod, renderer.PodConfig{IPs: []netip.Addr{addr}, Ingress: l})
	if err := s.Renderer().Apply(t.Context(), changes); err != nil {
		t.Fatal(err)
	}
	for _, i := range s.sw.Interfaces() {
		switch {
		case i.Index == s.ports[pod] && (len(i.Inputs) != 2 || len(i.Outputs) != 0):
			t.Errorf("the pod's interface has %d and %d ACLs, want infra and a table for what enters", len(i.Inputs), len(i.Outputs))
		case i.Index != s.ports[pod] && len(i.Inputs)+len(i.Outputs) > 0:
			t.Errorf("interface %s has ACLs", i.Name)
		}
	}
	out := api.Flow{Src: addr, Dst: netip.MustParseAddr("192.0.2.1"), Protocol: api.TCP, SrcPort: 1024, DstPort: 80}
	if s.Verdict(out) != api.Permit {
		t.Errorf("%s is denied", out)
	}
	if out.DstPort = 81; s.Verdict(out) != api.Deny {
		t.Errorf("%s is permitted", out)
	}
}

// TestSplitKeepsFlowsWhilePolicyTightens opens flows in both directions and then denies both. Open
// flows continue; new ones are denied.
func TestSplitKeepsFlowsWhilePolicyTightens(t *testing.T) {
	s := newSplit(t)
	defer s.closing(t)
	pod, addr, far := renderertest.PodIDs[0], netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("192.0.2.1")
	tell := func(action api.Action) {
		t.Helper()
		l := renderer.NewRuleList([]api.ContivRule{{Action: action, Protocol: api.TCP, DstPort: api.Port(80)}, {Action: api.Deny}}, nil)
		changes := renderer.Changes{}
		changes.Render(pod, renderer.PodConfig{IPs: []netip.Addr{addr}, Ingress: l, Egress: l})
		if err := s.Renderer().Apply(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
	}
	tell(api.Permit)
	pass := func(p vswitch.Packet) bool {
		in := s.uplink
		if p.Src == addr {
			in = s.ports[pod]
		}
		return s.sw.Inject(in, p).Verdict == api.Permit
	}
	for name, f := range map[string]api.Flow{
		"of the pod": {Src: addr, Dst: far, Protocol: api.TCP, SrcPort: 1024, DstPort: 80},
		"to the pod": {Src: far, Dst: addr, Protocol: api.TCP, SrcPort: 1024, DstPort: 80},
	} {
		tell(api.Permit)
		syn := vswitch.FlowPacket(f)
		ack := syn
		ack.TCPFlags = 16
		if !pass(syn) || !pass(syn.Reply()) || !pass(ack) {
			t.Fatalf("a flow %s cannot be opened", name)
		}
		tell(api.Deny)
		if !pass(ack) || !pass(ack.Reply()) {
			t.Errorf("a flow %s that is open is cut", name)
		}
		if syn.SrcPort++; pass(syn) {
			t.Errorf("a new flow %s passes", name)
		}
	}
}

func (s *subject) closing(t *testing.T) {
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
