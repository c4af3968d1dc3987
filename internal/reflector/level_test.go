package reflector

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/view"
)

// report writes what an agent reports.
func (r *Reflector) report(t *testing.T, node string, level int) {
	t.Helper()
	value, err := json.Marshal(view.NodeStatus{Node: node, Level: level})
	if err != nil {
		t.Fatal(err)
	}
	r.put(t, model.StatusRoot(r.cfg.EtcdPrefix)+node, value)
}

func (r *Reflector) put(t *testing.T, key string, value []byte) {
	t.Helper()
	if err := r.store.Write(t.Context(), []model.Entry{{Key: key, Value: value}}, nil); err != nil {
		t.Fatal(err)
	}
}

// TestReflectorRefusesAgentsOfLowerLevel: it does not lead while one reports, unless the store has
// a state of its level already.
func TestReflectorRefusesAgentsOfLowerLevel(t *testing.T) {
	r := unanswered(t)
	fit := func(want bool, why string) {
		t.Helper()
		if got := r.agentsAreFit(t.Context()); got != want {
			t.Errorf("may lead: %t, want %t", got, want)
		}
		_, page := r.page(t, "/readyz")
		if strings.Contains(page, "does not lead") == want || !strings.Contains(page, why) {
			t.Errorf("/readyz says\n%s\nwant %q", page, why)
		}
	}
	r.report(t, "node-1", model.Level)
	fit(true, "")
	r.level = model.Level + 1
	fit(false, `1 agents enforce less than the state that it would write needs (level 2), upgrade sluice-agent first: "node-1"`)
	for n := range 9 {
		r.put(t, fmt.Sprintf("%s\x1b[2Jx%d", model.StatusRoot(r.cfg.EtcdPrefix), n), []byte("{"))
	}
	fit(false, `10 agents enforce less than the state that it would write needs (level 2), upgrade sluice-agent first: "\x1b[2Jx0"`)
	value, err := model.EncodeMarker(&model.Marker{Cluster: "c", Generation: 1, Level: model.Level + 1})
	if err != nil {
		t.Fatal(err)
	}
	r.put(t, model.MarkerKey(r.cfg.EtcdPrefix), value)
	fit(true, "")
	r.level = model.Level + 2
	for n := range 9 {
		if err := r.store.Write(t.Context(), nil, []string{fmt.Sprintf("%s\x1b[2Jx%d", model.StatusRoot(r.cfg.EtcdPrefix), n)}); err != nil {
			t.Fatal(err)
		}
	}
	r.report(t, "node-1", model.Level+2)
	fit(true, "")
}
