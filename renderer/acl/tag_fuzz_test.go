package acl

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/mirror"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// FuzzTag: the tag of an ACL is parsed as its name and fits; formatting a parsed tag gives the
// same tag. The tags of two pods differ, and are never parsed as the tag of an ACL or of an uplink.
func FuzzTag(f *testing.F) {
	for _, s := range []string{
		"sluice:l1:0:00", "sluice:g:9999999999999999999999:", "sluice:l4294967295:254:00", "sluice::1:", "sluice:x:-1:", "sluice:x:+1:", "sluice", "firewall",
		"sluice:l1:01:00", "sluice:l1:1", "sluice:l1:2c:00", "sluice:l1:3W:00", "sluice/pod/a/b", UplinkTag,
	} {
		f.Add(s, "web-0")
	}
	f.Add("sluice:a:1:", strings.Repeat("x", 100))
	f.Fuzz(func(t *testing.T, tag, pod string) {
		name, n, own := mirror.ParseTag(tag)
		if own != strings.HasPrefix(tag, mirror.OwnPrefix) || n < -1 || name != "" && !own {
			t.Fatalf("%q is read as %q %d %v", tag, name, n, own)
		}
		if n >= 0 {
			if again, m, ok := mirror.ParseTag(mirror.Tag(name, n, entries.DigestOf(nil))); again != name || m != n || !ok {
				t.Errorf("%q is read as %q %d, and that as %q %d %v", tag, name, n, again, m, ok)
			}
		}
		if pod == "" || strings.Contains(pod, "/") {
			return
		}
		a := InterfaceTag(api.PodID{Namespace: "shop", Name: pod})
		b := InterfaceTag(api.PodID{Namespace: "shop", Name: pod + "-0"})
		if _, _, own := mirror.ParseTag(a); own || a == b || a == UplinkTag || len(a) > vpp.MaxTag {
			t.Errorf("tags of two pods: %q and %q", a, b)
		}
	})
}
