package session_test

import (
	"bytes"
	"net/netip"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// TestCheckShowsWhatDiffersFromTheSessionRules removes a rule behind the renderer's back, and has
// the audit repair it. Check itself repairs nothing.
func TestCheckShowsWhatDiffersFromTheSessionRules(t *testing.T) {
	inAudit(t, func(t *testing.T, s *backends.Session, audit func(), _ *bytes.Buffer) {
		check := func() (int, string) {
			objects, drift, err := s.Rules.Check(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return objects, strings.Join(drift, "\n")
		}
		objects, drift := check()
		if objects == 0 || drift != "" {
			t.Errorf("%d objects, drift %q", objects, drift)
		}
		for _, r := range s.Switch.SessionRules() {
			if r.Local && r.Protocol == api.TCP && r.Action == vswitch.SessionRuleDrop {
				if !s.Switch.ChangeSessionRule(false, r) {
					t.Fatalf("%+v is not removed", r)
				}
				break
			}
		}
		for range 2 {
			if again, drift := check(); again != objects || !strings.HasSuffix(drift, " is gone") || strings.Contains(drift, "\n") {
				t.Errorf("%d objects, drift %q", again, drift)
			}
		}
		audit()
		if _, drift := check(); drift != "" {
			t.Errorf("after the audit: %q", drift)
		}
		foreign := vswitch.SessionRule{Local: true, Namespaces: []uint32{s.Namespaces[client]}, Protocol: api.TCP, Lcl: netip.MustParsePrefix("0.0.0.0/0"),
			Rmt: netip.PrefixFrom(somewhere, 32), RmtPort: 443, Action: vswitch.SessionRuleAllow, Tag: "theirs"}
		s.Switch.ChangeSessionRule(true, foreign)
		if _, drift := check(); drift != "rules of another owner beside ours have come or gone" {
			t.Errorf("with a rule of another owner: %q", drift)
		}
	})
}
