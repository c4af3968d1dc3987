package configurator

import (
	"net/netip"
	"testing"

	"github.com/sluice-net/sluice/api"
)

func TestDerivedSetsDescribeTheirSources(t *testing.T) {
	many := make([]netip.Prefix, maxInline+1)
	for want, s := range map[string]addressSet{
		"blocks": {members: many},
		"in both 000000000000012c and 000000000000012d": {common: &common{sets: []api.SetID{300, 301}}},
		"in node, within [10.0.0.0/8]":                  {common: &common{sets: []api.SetID{1}, prefixes: []netip.Prefix{pfx("10.0.0.0/8")}}},
		"in 000000000000012c, within 5 blocks":          {common: &common{sets: []api.SetID{300}, prefixes: many}},
	} {
		if got := s.meaning(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
