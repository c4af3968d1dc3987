package vpp

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// TestVPPAddressTranslation has VPP give pods another source where they leave the node:
// behind the ACLs of the uplink policy is enforced, ahead of them it is refused.
func TestVPPAddressTranslation(t *testing.T) {
	l := newLab(t, vpptest.NewNetwork(vpptest.Launch(t, "nat_plugin.so", "nat44_ei_plugin.so")), "node-1")
	w := shop(t)
	uplink := l.Links[acl.UplinkTag].Name
	permitted, denied := l.tcp("10.10.1.40", "203.0.113.10", 443), l.tcp("10.10.1.40", "203.0.113.10", 444)

	l.CLI("nat44 ei plugin enable")
	l.Do("nat44 ei add address 192.0.2.200")
	l.Do("set interface nat44 ei out %s output-feature", uplink)
	l.apply(w.resync())
	t.Run("behind the ACLs", func(t *testing.T) {
		if !l.leaves(permitted.syn) {
			t.Error("what policy permits does not leave")
		}
		if sessions := l.CLI("show nat44 ei sessions detail"); !strings.Contains(sessions, "192.0.2.200") {
			t.Errorf("nothing was translated:\n%s", sessions)
		}
		if l.leaves(denied.syn) {
			t.Error("what policy denies leaves")
		}
	})
	l.Do("set interface nat44 ei out %s output-feature del", uplink)
	l.CLI("nat44 ei plugin disable")

	l.CLI("nat44 plugin enable sessions 1000")
	l.Do("nat44 add address 192.0.2.200")
	l.Do("set interface nat44 out %s output-feature", uplink)
	t.Run("ahead of the ACLs", func(t *testing.T) {
		l.Do("set interface state loop0 down") // has the renderer look
		l.Do("set interface state loop0 up")
		vpptest.Eventually(t, "the agent to refuse", func() bool {
			e := fmt.Sprint(l.real.ACL.State().Err)
			return strings.Contains(e, "nat-pre-in2out-output") && strings.Contains(e, uplink)
		})
		if !l.leaves(denied.syn) {
			t.Log("what policy denies does not leave: this version of VPP could be served")
		}
	})
	l.Do("set interface nat44 out %s output-feature del", uplink)
	vpptest.Eventually(t, "the agent to go on", func() bool { return l.real.ACL.State().Err == nil })
}

// TestVPPSplit makes VPP translate the source of pods' packets on input, so that only the ACLs of
// the pod's own interface see the sender. Established flows continue.
func TestVPPSplit(t *testing.T) {
	p := vpptest.NewNetwork(vpptest.Launch(t, "nat_plugin.so"))
	l := newLabWith(t, p, "node-1", acl.Options{Orientation: acl.Split, Flows: acl.Flows{Established: acl.Keep}})
	w := shop(t)
	l.apply(w.resync())
	l.compare(t)
	total := l.judge(t, w.state(), 60_000)
	atLeast(t, "permitted packets", total.permitted, 5000)
	atLeast(t, "denied packets", total.sent-total.permitted, 5000)

	l.CLI("nat44 plugin enable sessions 1000")
	l.Do("nat44 add address 192.0.2.200")
	l.Do("set interface nat44 in %s out %s", l.At(netip.MustParseAddr("10.10.1.40")).Name, l.Links[acl.UplinkTag].Name)
	l.Do("set interface state loop0 down") // has the renderer look
	l.Do("set interface state loop0 up")
	permitted, denied := l.tcp("10.10.1.40", "203.0.113.10", 443), l.tcp("10.10.1.40", "203.0.113.10", 444)
	if !l.leaves(permitted.syn) {
		t.Error("what policy permits does not leave")
	}
	if sessions := l.CLI("show nat44 sessions"); !strings.Contains(sessions, "192.0.2.200") {
		t.Errorf("nothing was translated:\n%s", sessions)
	}
	if l.leaves(denied.syn) {
		t.Error("what policy denies leaves")
	}
	if err := l.real.ACL.State().Err; err != nil {
		t.Errorf("the agent refuses the layout: %v", err)
	}
}

// leaves reports whether a packet leaves through the uplink, with whatever source.
func (l *lab) leaves(p vpptest.Packet) bool {
	_, left := l.Inject([]vpptest.Packet{p}).Left[p.Mark]
	return left
}
