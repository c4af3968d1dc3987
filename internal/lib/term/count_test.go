package term

import "testing"

func TestCountHasSingularAndPlural(t *testing.T) {
	for want, tc := range map[string]struct {
		n     int
		thing string
	}{
		"1 interface":   {1, "interface"},
		"0 interfaces":  {0, "interface"},
		"2 policies":    {2, "policy"},
		"3 ACL entries": {3, "ACL entry"},
		"2 addresses":   {2, "address"},
		"2 mismatches":  {2, "mismatch"},
		"5 days":        {5, "day"},
		"1 policy":      {1, "policy"},
	} {
		if got := Count(tc.n, tc.thing); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
