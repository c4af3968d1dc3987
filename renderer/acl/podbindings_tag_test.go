package acl

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
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
