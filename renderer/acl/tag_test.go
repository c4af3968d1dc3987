package acl

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/vpp"
)

func TestInterfaceTagsFitAndAreUnique(t *testing.T) {
	long := strings.Repeat("n", 60)
	seen := make(map[string]api.PodID)
	for _, p := range []api.PodID{{Namespace: "a", Name: "b"}, {Namespace: long, Name: "x"}, {Namespace: long, Name: "y"}, {Namespace: long[1:], Name: "nx"}} {
		tag := InterfaceTag(p)
		if len(tag) > vpp.MaxTag || !strings.HasPrefix(tag, "sluice/pod/") {
			t.Errorf("tag %q of %d characters", tag, len(tag))
		}
		if o, ok := seen[tag]; ok {
			t.Errorf("%v and %v have the tag %q", o, p, tag)
		}
		seen[tag] = p
	}
	if got := InterfaceTag(api.PodID{Namespace: "a", Name: "b"}); got != "sluice/pod/a/b" {
		t.Errorf("tag %q", got)
	}
}

func TestTagsOfACLsAreReadBack(t *testing.T) {
	for _, r := range []layout.Role{{}, {Kind: layout.Cold, Verdict: entries.Deny}, {Kind: layout.Cold, Verdict: entries.Reflect}, {Kind: layout.Warm, Verdict: entries.Deny}, {Kind: layout.Warm, Verdict: entries.Reflect}, {Kind: layout.Young, Verdict: entries.Deny}, {Kind: layout.Young, Verdict: entries.Reflect}} {
		tag := aclTag("l4294967295", 254, r, entries.DigestOf(nil))
		if slot, n, got, own := parseTag(tag); len(tag) > vpp.MaxTag || slot != "l4294967295" || n != 254 || got != r || !own {
			t.Errorf("%q is read as %q %d %v %v", tag, slot, n, got, own)
		}
	}
	for tag, own := range map[string]bool{"": false, "firewall": false, "sluice": false, "sluice:": true, "sluice:x": true, "sluice:x:-1:": true, "sluice::1:": true} {
		if slot, _, _, got := parseTag(tag); got != own || slot != "" {
			t.Errorf("%q: slot %q, own %v, want %v", tag, slot, got, own)
		}
	}
}

func FuzzParseTag(f *testing.F) {
	f.Add("sluice:l1:0:00")
	f.Add("sluice:g:9999999999999999999999:")
	f.Fuzz(func(t *testing.T, tag string) {
		slot, n, _, own := parseTag(tag)
		if own != strings.HasPrefix(tag, ownPrefix) || n < 0 || slot != "" && !own {
			t.Errorf("%q is read as %q %d %v", tag, slot, n, own)
		}
	})
}
