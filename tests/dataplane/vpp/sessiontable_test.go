package vpp

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/tests/dataplane/vpp/vpptest"
)

// questions returns the first packets of flows of UDP that the pod opens.
func questions(n int) []vpptest.Packet {
	out := make([]vpptest.Packet, n)
	for i := range out {
		out[i] = vpptest.First(api.Flow{Src: podAddress[false], Dst: worldAddress[false], Protocol: api.UDP,
			SrcPort: uint16(10_000 + i), DstPort: 53}, uint32(1_000_000+i))
	}
	return out
}

// TestVPPSessionTableFillsAndEmpties fills all places from a pod that may send.
func TestVPPSessionTableFillsAndEmpties(t *testing.T) {
	x := newAudited(t)
	const limit = 2000
	x.open(acl.Options{Flows: acl.Flows{SessionTable: limit}, Audit: auditEvery})
	x.render(onPort(80), nil)
	x.expect("at first", false)
	// One place stays free. A flow has a session where it enters and one where it leaves; the last
	// vector of 256 packets enters before any of it leaves.
	left := len(x.v.Send(questions(1500)).Left)
	if left >= limit/2 || left < limit/2-256 {
		t.Errorf("%d of 1500 flows pass, want nearly %d", left, limit/2)
	}
	x.until("a table that is full", func() bool { return errors.Is(x.r.State().Err, renderer.ErrSessionsFull) })
	s := x.r.State()
	if s.Sessions.Used != limit-1 || s.Sessions.Max != limit || !strings.Contains(s.Err.Error(), "interface "+x.v.Links[podTag].Name+" of pod test/pod has ") {
		t.Errorf("sessions %+v, error %v", s.Sessions, s.Err)
	}
	if x.passes(questions(1501)[1500]) {
		t.Error("a flow beyond the table passes")
	}
	x.cli("set acl-plugin session timeout udp idle 1")
	x.until("places", func() bool { return x.r.State().Err == nil })
	x.until("an empty table", func() bool { return x.r.State().Sessions.Used < 10 })
	x.expect("at last", false)
}

// open starts the renderer of the test anew, with other settings.
func (x *audited) open(o acl.Options) {
	x.Helper()
	if err := x.r.Close(); err != nil {
		x.Fatal(err)
	}
	o.Socket, o.Stats.Socket, o.OnChange = x.v.Socket(), x.v.StatsSocket(), x.prompt
	var err error
	if x.r, err = acl.New(o); err != nil {
		x.Fatal(err)
	}
}

// heapUsed returns what is taken of VPP's main heap, in bytes, rounded as VPP prints it.
func (x *audited) heapUsed() float64 {
	x.Helper()
	m := regexp.MustCompile(`used: ([0-9.]+)M`).FindStringSubmatch(x.v.CLI("show memory main-heap"))
	if m == nil {
		x.Fatal("vpp does not say how much of its heap is taken")
	}
	n, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		x.Fatal(err)
	}
	return n * (1 << 20)
}

// TestVPPSessionTableGetsFittingSize opens renderers one after the other. The first finds a VPP
// without a table, in a heap of 512 MB.
func TestVPPSessionTableGetsFittingSize(t *testing.T) {
	x := newAudited(t)
	var log bytes.Buffer
	for _, step := range []struct {
		wanted  uint32
		has     uint64
		warning string
	}{
		{wanted: 3_000_000, has: 500_000, warning: "a full table needs"}, // of which nothing is bound yet
		{wanted: 600_000, has: 600_000},
		{wanted: 1_000, has: 1_000},
		{wanted: 600_000, has: 600_000},
		{wanted: 600_001, has: 600_000, warning: "connection count max 600001"},
	} {
		log.Reset()
		x.open(acl.Options{Flows: acl.Flows{SessionTable: step.wanted}, Audit: -1, Log: slog.New(slog.NewTextHandler(&log, nil))})
		if step.wanted == 3_000_000 {
			if err := x.r.Apply(t.Context(), renderer.Changes{Resync: true}); err != nil {
				t.Fatal(err)
			}
		} else {
			before := x.heapUsed()
			x.render(onPort(80), nil)
			if grown := x.heapUsed() - before; step.wanted == 600_000 && step.warning == "" && before < 100<<20 && (grown < 600_000*128 || grown > 600_000*133+(8<<20)) {
				t.Errorf("the table takes %.0f bytes", grown)
			}
		}
		if got := x.r.State().Sessions.Max; got != step.has {
			t.Errorf("wanted %d: has %d, want %d", step.wanted, got, step.has)
		}
		if warned := strings.Contains(log.String(), "could not resize the session table"); warned != (step.warning != "") || !strings.Contains(log.String(), step.warning) {
			t.Errorf("wanted %d: logged %s", step.wanted, &log)
		}
	}
	x.expect("at last", false)
}
