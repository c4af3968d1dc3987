package plugin

import (
	"log/slog"
	"slices"
	"strings"
	"testing"

	interfaces "go.fd.io/govpp/binapi/interface"
	"go.fd.io/govpp/binapi/interface_types"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/plugin/binapi/sluice"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// TestDriftCountsWhatThePluginRepairsFromNowOn: what was before this agent is another one's, and
// another VPP begins anew.
func TestDriftCountsWhatThePluginRepairsFromNowOn(t *testing.T) {
	var log strings.Builder
	d := drift{log: slog.New(slog.NewTextHandler(&log, nil))}
	for _, step := range []struct {
		repaired, total uint64
		logged          int
	}{{5, 0, 0}, {5, 0, 0}, {7, 2, 1}, {7, 2, 1}, {1, 3, 2}, {1, 3, 2}, {0, 3, 2}, {2, 5, 3}} {
		d.counted(step.repaired)
		s := renderer.State{Drift: map[string]uint64{"attachment": 1}}
		d.in(&s)
		if logged := strings.Count(log.String(), "kind=arc"); s.Drift["arc"] != step.total || s.Drift["attachment"] != 1 || logged != step.logged {
			t.Errorf("after %d: %v, logged %d times, want %d and %d", step.repaired, s.Drift, logged, step.total, step.logged)
		}
	}
}

// TestPlaneNamesInterfacesThatItCannotJudge: one that is bridged gets no rules, and is named if a
// pod has it, as is one that is open. A sub-interface is none that is left over.
func TestPlaneNamesInterfacesThatItCannotJudge(t *testing.T) {
	pod := api.PodID{Namespace: "lab", Name: "web"}
	tag := vpp.PodTag(pod.String())
	p := &plane{ports: newPorts(Pods{}, func() {})}
	p.judged = map[uint32]sluice.SluiceState{
		1: sluice.SLUICE_API_BOUND, 2: sluice.SLUICE_API_BRIDGED, 3: sluice.SLUICE_API_BRIDGED, 4: sluice.SLUICE_API_OPEN, 5: sluice.SLUICE_API_BLOCKED,
	}
	found := []*interfaces.SwInterfaceDetails{
		{SwIfIndex: 1, SupSwIfIndex: 1, InterfaceName: "one", Tag: tag}, {SwIfIndex: 2, SupSwIfIndex: 2, InterfaceName: "two", Tag: tag},
		{SwIfIndex: 3, SupSwIfIndex: 3, InterfaceName: "three", Tag: vpp.PodTag("lab/unknown")}, {SwIfIndex: 4, SupSwIfIndex: 4, InterfaceName: "four", Tag: tag},
		{SwIfIndex: interface_types.InterfaceIndex(5), SupSwIfIndex: 1, InterfaceName: "one.7"}, {SwIfIndex: 6, SupSwIfIndex: 6, InterfaceName: "six"},
	}
	p.begin()
	p.read(0, found, nil, p.judged)
	if got := p.interfacesOf(pod); !slices.Equal(got, []uint32{1, 4}) {
		t.Errorf("the interfaces of the pod are %v", got)
	}
	err := p.unjudged()
	if err == nil || strings.Count(err.Error(), "\n") != 1 {
		t.Fatalf("the error is %v", err)
	}
	for _, want := range []string{"interface two of pod lab/web is bridged or cross-connected", "interface four with tag \"" + tag + "\" is open"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error is %q, want %q", err, want)
		}
	}
	p.publish(map[uint32]api.PodID{1: pod})
	for name, want := range map[string]string{"one": vpp.BoundEnforced, "two": vpp.BoundPending + " bridged", "three": vpp.BoundPending, "one.7": vpp.BoundPending + " sub-interface of one"} {
		state, reason, _ := strings.Cut(want, " ")
		if b, _ := p.Bound(name, 0); b.State != state || !strings.Contains(b.Reason, reason) {
			t.Errorf("interface %s is %s: %s, want %s", name, b.State, b.Reason, want)
		}
	}
	if _, known := p.Bound("six", 0); known {
		t.Error("an interface that is not judged is taken for a pod's")
	}
	p.judged = map[uint32]sluice.SluiceState{1: sluice.SLUICE_API_BOUND, 3: sluice.SLUICE_API_BRIDGED}
	if err := p.unjudged(); err != nil {
		t.Errorf("with nothing of a known pod: %v", err)
	}
}
