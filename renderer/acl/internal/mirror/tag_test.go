package mirror

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/vpp"
)

func TestTagsOfACLsAreReadBack(t *testing.T) {
	tag := Tag("reflect", 254, entries.DigestOf(nil))
	if name, n, own := ParseTag(tag); len(tag) > vpp.MaxTag || name != "reflect" || n != 254 || !own {
		t.Errorf("%q is read as %q %d %v", tag, name, n, own)
	}
	for tag, own := range map[string]bool{"": false, "firewall": false, "sluice": false, "sluice:": true, "sluice:x": true, "sluice:x:-1:": true, "sluice::1:": true, "sluice:l1:2c:00": true} {
		if name, n, got := ParseTag(tag); got != own || n >= 0 && name != "" {
			t.Errorf("%q: name %q %d, own %v, want %v", tag, name, n, got, own)
		}
	}
}

func FuzzParseTag(f *testing.F) {
	f.Add("sluice:base:0:00")
	f.Add("sluice:g:9999999999999999999999:")
	f.Fuzz(func(t *testing.T, tag string) {
		if name, n, own := ParseTag(tag); own != strings.HasPrefix(tag, OwnPrefix) || n < -1 || !own && (name != "" || n >= 0) {
			t.Errorf("%q is read as %q %d %v", tag, name, n, own)
		}
	})
}
