package vpp

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/renderer/acl"
)

// TestVPPAddressTranslation has VPP give pods another source where they leave the node:
// behind the ACLs of the uplink policy is enforced, ahead of them it is refused.
func TestVPPAddressTranslation(t *testing.T) {
	l := newLab(plumb(startVPP(t, "nat_plugin.so", "nat44_ei_plugin.so")), "node-1")
	w := shop(t)
	uplink := l.links[acl.UplinkTag].name
	permitted, denied := l.tcp("10.10.1.40", "203.0.113.10", 443), l.tcp("10.10.1.40", "203.0.113.10", 444)

	l.cli("nat44 ei plugin enable")
	l.do("nat44 ei add address 192.0.2.200")
	l.do("set interface nat44 ei out %s output-feature", uplink)
	l.apply(w.resync())
	t.Run("behind the ACLs", func(t *testing.T) {
		if !l.leaves(permitted.syn) {
			t.Error("what policy permits does not leave")
		}
		if sessions := l.cli("show nat44 ei sessions detail"); !strings.Contains(sessions, "192.0.2.200") {
			t.Errorf("nothing was translated:\n%s", sessions)
		}
		if l.leaves(denied.syn) {
			t.Error("what policy denies leaves")
		}
	})
	l.do("set interface nat44 ei out %s output-feature del", uplink)
	l.cli("nat44 ei plugin disable")

	l.cli("nat44 plugin enable sessions 1000")
	l.do("nat44 add address 192.0.2.200")
	l.do("set interface nat44 out %s output-feature", uplink)
	t.Run("ahead of the ACLs", func(t *testing.T) {
		l.do("set interface state loop0 down") // has the renderer look
		l.do("set interface state loop0 up")
		eventually(t, "the agent to refuse", func() bool {
			e := l.real.ACL.Dump().Error
			return strings.Contains(e, "nat-pre-in2out-output") && strings.Contains(e, uplink)
		})
		if !l.leaves(denied.syn) {
			t.Log("what policy denies does not leave: this version of VPP could be served")
		}
	})
	l.do("set interface nat44 out %s output-feature del", uplink)
	eventually(t, "the agent to go on", func() bool { return l.real.ACL.Dump().Error == "" })
}

// leaves says whether a packet leaves through the uplink, with whatever source.
func (l *lab) leaves(p packet) bool {
	_, left := l.inject([]packet{p}).left[p.mark]
	return left
}
