package differential

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-net/sluice/tests/lab/cluster"
	"github.com/sluice-net/sluice/tests/lab/harness/backends"
)

// worlds are the kinds of clusters that are drawn.
var worlds = map[string]World{
	"two nodes":        {Config: cluster.SmallWithAudit()},
	"one node":         {Config: cluster.Config{Namespaces: 2, Nodes: 1, Pods: 8, Policies: 8, IPv6: true, Odd: true, Audit: true}},
	"four nodes":       {Config: cluster.Config{Namespaces: 3, Nodes: 4, Pods: 14, Policies: 10, Admin: 6, IPv6: true, Odd: true, Audit: true}},
	"deny node":        {Config: cluster.Small(), DenyNode: true},
	"shared addresses": {Config: cluster.Config{Namespaces: 3, Nodes: 2, Pods: 8, Policies: 6, Admin: 2, IPv6: true, Odd: true, Audit: true, SharedAddresses: true}},
}

// TestMachine lets everything happen to running clusters that can happen.
func TestMachine(t *testing.T) {
	t.Parallel()
	backends.Each(t, func(t *testing.T, kind backends.Kind) {
		needTime(t, kind)
		for name, w := range worlds {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				rapid.Check(t, func(t *rapid.T) { runMachine(t, w, Options{Kind: kind}) })
			})
		}
	})
}

// rig is a machine that rapid drives.
type rig struct {
	machine *Machine
	played  Case
}

func runMachine(t *rapid.T, w World, o Options) {
	m, err := New(w.Options(o))
	if err != nil {
		t.Fatal(err)
	}
	defer closing(t, m.Close)
	r := &rig{machine: m, played: Case{World: w}}
	begin := rapid.Custom(func(t *rapid.T) []Event { return DrawStart(cluster.FromRapid(t), w.Config) })
	for _, e := range begin.Draw(t, "start") {
		r.do(t, e)
	}
	actions := map[string]func(*rapid.T){}
	for _, name := range Actions() {
		draw := rapid.Custom(func(t *rapid.T) Event { return Draw(cluster.FromRapid(t), w.Config, m.State(), name) })
		actions[name] = func(t *rapid.T) { r.do(t, draw.Draw(t, "event")) }
	}
	t.Repeat(actions)
	if err := m.Finish(t.Context()); err != nil {
		t.Fatalf("%s\n%s", r.played, err)
	}
}

func (r *rig) do(t *rapid.T, e Event) {
	r.played.Events = append(r.played.Events, e)
	if err := r.machine.Do(t.Context(), e); err != nil {
		t.Fatalf("%s\n%s", r.played, err)
	}
}

func closing(t rapid.TB, close func() error) {
	if err := close(); err != nil {
		t.Error(err)
	}
}
