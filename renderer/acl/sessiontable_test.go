package acl_test

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/vlib"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/renderer"
	sluiceacl "github.com/sluice-net/sluice/renderer/acl"
)

// flood makes a pod without a policy send n UDP queries, each from its own port, and returns how
// many pass.
func (s *subject) flood(n int) (passed int) {
	for port := range uint16(n) {
		p := vswitch.FlowPacket(api.Flow{Src: addr("10.0.0.4"), Dst: addr("10.9.0.9"), Protocol: api.UDP, SrcPort: 10000 + port, DstPort: 53})
		if s.sw.Inject(s.ports[pod("open")], p).Verdict == api.Permit {
			passed++
		}
	}
	return passed
}

// TestSessionTableIsFullUntilFlowsAreIdle fills the table from one pod. Each flow has one session
// at the pod's interface and one at the uplink.
func TestSessionTableIsFullUntilFlowsAreIdle(t *testing.T) {
	inAuditOf(t, vswitch.Options{Quirks: true, MaxSessions: 101}, func(t *testing.T, s *subject, audit func(), log *bytes.Buffer) {
		audit()
		if st := s.r.State(); st.Err != nil || st.Sessions == nil || *st.Sessions != (renderer.Sessions{Max: 101}) {
			t.Fatalf("at first: %v, sessions %+v", st.Err, st.Sessions)
		}
		const places = 100
		passed := s.flood(150)
		if passed != places/2 {
			t.Errorf("%d of 150 flows pass, want %d", passed, places/2)
		}
		for range 100 {
			audit()
		}
		st := s.r.State()
		if !errors.Is(st.Err, renderer.ErrSessionsFull) || st.Sessions.Used != places || !strings.Contains(st.Err.Error(), "; 100 of 101 entries are used; interface shop/open of pod shop/open has 50") {
			t.Errorf("flooded: %v, sessions %+v", st.Err, st.Sessions)
		}
		if n := strings.Count(log.String(), "vpp's session table is full and new flows"); n != 2 {
			t.Errorf("it was logged %d times in 100 s, want 2:\n%s", n, log)
		}
		time.Sleep(10 * time.Minute)
		commit(t, s.Renderer(), false, nothing) // an audit is due
		if st := s.r.State(); st.Err != nil || st.Sessions.Used != 0 || !strings.Contains(log.String(), "the session table is no longer full") {
			t.Errorf("when they are idle: %v, sessions %+v, %s", st.Err, st.Sessions, log)
		}
		if got := s.flood(1); got != 1 {
			t.Error("a new flow does not pass")
		}
	})
}

// TestSessionTableStaysFullUntilMorePlacesAreFree checks the hysteresis between the two
// limits.
func TestSessionTableStaysFullUntilMorePlacesAreFree(t *testing.T) {
	inAuditOf(t, vswitch.Options{MaxSessions: 200}, func(t *testing.T, s *subject, audit func(), _ *bytes.Buffer) {
		full := func(when string, sessions uint64, want bool) {
			t.Helper()
			audit()
			if st := s.r.State(); st.Sessions.Used != sessions || errors.Is(st.Err, renderer.ErrSessionsFull) != want {
				t.Errorf("%s: %d sessions, %v; want %d, full: %t", when, st.Sessions.Used, st.Err, sessions, want)
			}
		}
		s.flood(94)
		full("94 %", 188, false)
		s.flood(95)
		full("95 %", 190, true)
		s.limit(t, "210")
		full("just above 90 %", 190, true)
		s.limit(t, "212")
		full("below 90 %", 190, false)
	})
}

// limit changes the limit through the command line of the vswitch.
func (s *subject) limit(t *testing.T, n string) {
	t.Helper()
	conn, err := core.Connect(s.sw.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	if _, err := vlib.NewServiceClient(conn).CliInband(t.Context(), &vlib.CliInband{Cmd: "set acl-plugin session table max-entries " + n}); err != nil {
		t.Fatal(err)
	}
}

// TestSessionTableGetsFittingSize opens renderers with different sizes, one after the other, on
// a vswitch whose table exists since the first of them bound ACLs.
func TestSessionTableGetsFittingSize(t *testing.T) {
	for name, x := range map[string]struct {
		v     vswitch.Options
		sizes []uint32 // wanted
		want  []uint64 // what it has then
		warns int
	}{
		"as VPP":   {vswitch.Options{Quirks: true, MaxSessions: 500}, []uint32{0, 700, 300, 400, 600, 701, 0}, []uint64{500, 500, 300, 400, 400, 400, 400}, 3},
		"set once": {vswitch.Options{Quirks: true, MaxSessions: 500}, []uint32{700, 0, 300, 700, 701}, []uint64{700, 700, 300, 700, 700}, 1},
		"embedded": {vswitch.Options{MaxSessions: 500}, []uint32{0, 700, 300}, []uint64{500, 700, 300}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			s := newSubjectOver(t, vswitch.New(x.v), nil, false, shopPods...)
			t.Cleanup(func() { _ = s.Close() })
			for i, size := range x.sizes {
				s.reopen(t, sluiceacl.Options{Flows: sluiceacl.Flows{SessionTable: size}, Log: slog.New(slog.NewTextHandler(&log, nil))})
				commit(t, s.Renderer(), true, shop)
				if got := s.r.State().Sessions.Max; got != x.want[i] {
					t.Errorf("step %d: wanted %d, got %d, want %d", i, size, got, x.want[i])
				}
			}
			if n := strings.Count(log.String(), "could not resize the session table"); n != x.warns {
				t.Errorf("%d warnings, want %d:\n%s", n, x.warns, &log)
			}
			if x.warns > 0 && !strings.Contains(log.String(), "connection count max 70") {
				t.Errorf("no warning names the setting:\n%s", &log)
			}
		})
	}
}

// TestSessionTableIsReadRarely uses a vswitch that answers slowly.
func TestSessionTableIsReadRarely(t *testing.T) {
	inAudit(t, func(t *testing.T, s *subject, audit func(), _ *bytes.Buffer) {
		s.tap.long = 20 * time.Millisecond
		audit()
		before := s.tap.looks
		for range 100 {
			audit()
		}
		if n := s.tap.looks - before; n < 4 || n > 5 {
			t.Errorf("%d looks in 100 s, want 5 at most: each takes 20 ms", n)
		}
	})
}
