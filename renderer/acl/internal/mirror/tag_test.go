package mirror

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/layout"
	"github.com/sluice-net/sluice/renderer/vpp"
)

func TestTagsOfACLsAreReadBack(t *testing.T) {
	for _, r := range []layout.Role{{}, {Kind: layout.Cold, Verdict: entries.Deny}, {Kind: layout.Cold, Verdict: entries.Reflect}, {Kind: layout.Warm, Verdict: entries.Deny}, {Kind: layout.Warm, Verdict: entries.Reflect}, {Kind: layout.Young, Verdict: entries.Deny}, {Kind: layout.Young, Verdict: entries.Reflect}} {
		tag := Tag("l4294967295", 254, r, entries.DigestOf(nil))
		if slot, n, got, own := ParseTag(tag); len(tag) > vpp.MaxTag || slot != "l4294967295" || n != 254 || got != r || !own {
			t.Errorf("%q is read as %q %d %v %v", tag, slot, n, got, own)
		}
	}
	for tag, own := range map[string]bool{"": false, "firewall": false, "sluice": false, "sluice:": true, "sluice:x": true, "sluice:x:-1:": true, "sluice::1:": true} {
		if slot, _, _, got := ParseTag(tag); got != own || slot != "" {
			t.Errorf("%q: slot %q, own %v, want %v", tag, slot, got, own)
		}
	}
}

func FuzzParseTag(f *testing.F) {
	f.Add("sluice:l1:0:00")
	f.Add("sluice:g:9999999999999999999999:")
	f.Fuzz(func(t *testing.T, tag string) {
		slot, n, _, own := ParseTag(tag)
		if own != strings.HasPrefix(tag, OwnPrefix) || n < 0 || slot != "" && !own {
			t.Errorf("%q is read as %q %d %v", tag, slot, n, own)
		}
	})
}
