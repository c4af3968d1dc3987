package vpp_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/renderer/vpp"
)

func TestSourceTagKeepsInterfaceAndUID(t *testing.T) {
	uid := "0a1b2c3d-0a1b-0a1b-0a1b-0a1b2c3d4e5f"
	tag := vpp.SourceTag("slu0123456789ab", uid)
	if hostIf, got, ok := vpp.ParseSourceTag(tag); len(tag) != vpp.MaxTag || !ok || hostIf != "slu0123456789ab" || got != uid {
		t.Errorf("%q has %q and %q, %t", tag, hostIf, got, ok)
	}
	for uid, want := range map[string]string{"": "", strings.Repeat("x", 60): "", "u": "u"} {
		tag := vpp.SourceTag("slu1", uid)
		if hostIf, got, ok := vpp.ParseSourceTag(tag); len(tag) > vpp.MaxTag || !ok || hostIf != "slu1" || got != want {
			t.Errorf("uid %q: %q has %q and %q, %t", uid, tag, hostIf, got, ok)
		}
	}
	if _, _, ok := vpp.ParseSourceTag("somebody's"); ok {
		t.Error("the list of somebody else is taken for ours")
	}
}

func TestMadeByCNIByKindAndAttachment(t *testing.T) {
	for name, want := range map[string]bool{
		"host-slu0123456789ab": true, "tap-slu0123456789ab": true, "memif-slu0123456789ab": true,
		"host-eth0": false, "loop-slu0123456789ab": false, "slu0123456789ab": false, "memif0/1": false, "tap0": false, "": false,
	} {
		if got := vpp.MadeByCNI(name); got != want {
			t.Errorf("%q: %t, want %t", name, got, want)
		}
	}
}
