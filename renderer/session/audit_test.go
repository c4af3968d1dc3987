package session_test

import (
	"bytes"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluicesession "github.com/sluice-net/sluice/renderer/session"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// inAudit runs a test with a pod that may connect to port 80, in a bubble with fake time. audit
// waits until the renderer requests an audit, and commits.
func inAudit(t *testing.T, test func(t *testing.T, s *backends.Session, audit func(), log *bytes.Buffer)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		wake := make(chan struct{}, 1)
		s := newStack(t, backends.SessionOptions{Quirks: true, Rules: sluicesession.Options{
			Audit: time.Second, Log: slog.New(slog.NewTextHandler(&log, nil)), OnChange: func() {
				select {
				case wake <- struct{}{}:
				default:
				}
			},
		}}, client)
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		if err := render(t, s, list(web, denyAll)); err != nil {
			t.Fatal(err)
		}
		test(t, s, func() {
			synctest.Wait()
			select {
			case <-wake:
			default:
			}
			<-wake
			if err := s.Renderer().Apply(t.Context(), renderer.Changes{}); err != nil {
				t.Fatal(err)
			}
		}, &log)
	})
}

func TestAuditRepairsSessionRules(t *testing.T) {
	inAudit(t, func(t *testing.T, s *backends.Session, audit func(), log *bytes.Buffer) {
		for _, family := range []netip.Addr{somewhere, somewhere6} {
			gone := 0
			for _, r := range s.Switch.SessionRules() {
				if r.Local && r.Protocol == api.TCP && r.Action == vswitch.SessionRuleDrop && r.Rmt.Addr().Is4() == family.Is4() {
					if gone++; !s.Switch.ChangeSessionRule(false, r) {
						t.Fatalf("%+v is not removed", r)
					}
				}
			}
			if gone != 1 || connect(s, family, 443) != api.Permit {
				t.Fatalf("%d rules were taken away, and nothing is open", gone)
			}
			audit()
			if connect(s, family, 443) != api.Deny || connect(s, family, 80) != api.Permit {
				t.Error("the rules are not repaired")
			}
		}
		if d := s.Rules.State(); d.Drift["rule"] != 2 || d.Err != nil {
			t.Errorf("drift %v, error %v", d.Drift, d.Err)
		}
		if text := log.String(); strings.Count(text, "level=WARN") != 2 || !strings.Contains(text, "to tcp 0.0.0.0/0 port 0 is gone") {
			t.Errorf("the log is\n%s", text)
		}
	})
}

// TestAuditShowsSessionRulesOfOthers adds a foreign rule that is more specific than ours, and
// removes it.
func TestAuditShowsSessionRulesOfOthers(t *testing.T) {
	inAudit(t, func(t *testing.T, s *backends.Session, audit func(), log *bytes.Buffer) {
		theirs := vswitch.SessionRule{Local: true, Namespaces: []uint32{s.Namespaces[client]}, Protocol: api.TCP, Lcl: netip.MustParsePrefix("0.0.0.0/0"),
			Rmt: netip.PrefixFrom(somewhere, 32), RmtPort: 443, Action: vswitch.SessionRuleAllow, Tag: "theirs"}
		for range 2 {
			if !s.Switch.ChangeSessionRule(true, theirs) {
				t.Fatal("a rule is refused")
			}
			audit()
			audit()
			f := s.Rules.State().Foreign
			if len(f) != 1 || !f[0].First || f[0].Tag != "theirs" || !f[0].Meets(client, api.PodID{}) || !strings.Contains(f[0].Object, "to tcp 198.51.100.7/32 port 443") {
				t.Errorf("shown is %+v", f)
			}
			if connect(s, somewhere, 443) != api.Permit {
				t.Error("the foreign rule was removed")
			}
			s.Switch.ChangeSessionRule(false, theirs)
			audit()
			if f := s.Rules.State().Foreign; len(f) != 0 {
				t.Errorf("shown after it went is %+v", f)
			}
		}
		if d := s.Rules.State().Drift["rule"]; d != 0 {
			t.Errorf("%d of our rules differed", d)
		}
		if text := log.String(); strings.Count(text, "level=WARN") != 2 {
			t.Errorf("the log is\n%s", text)
		}
	})
}

func TestAuditOfEqualSessionRulesChangesNothing(t *testing.T) {
	inAudit(t, func(t *testing.T, s *backends.Session, audit func(), log *bytes.Buffer) {
		before := s.Operations()
		for range 7 {
			audit()
		}
		if n := s.Operations() - before; n > 0 {
			t.Errorf("%d messages change something", n)
		}
		if strings.Contains(log.String(), "level=WARN") {
			t.Errorf("the log is\n%s", log)
		}
	})
}
