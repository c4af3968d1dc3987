package embedding

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/docs/examples/embedding"
)

const aclKeys = "/vnf-agent/vpp1/config/vpp/acls/v2/acl/"

// host is the main loop: it applies what its handler returns.
type host struct {
	t          testing.TB
	plugged    map[string]bool // pods that have an interface
	configured map[string][]byte
}

// apply applies a transaction and returns what it did.
func (h *host) apply(ops []embedding.Operation, err error) (done []string) {
	h.t.Helper()
	if err != nil {
		h.t.Fatal(err)
	}
	for _, op := range ops {
		verb := "put "
		if h.configured[op.Key] = op.Value; op.Value == nil {
			delete(h.configured, op.Key)
			verb = "delete "
		}
		done = append(done, verb+strings.TrimPrefix(op.Key, aclKeys))
	}
	return done
}

func TestAgentWithMainLoopGetsTxnPerEvent(t *testing.T) {
	h := &host{t: t, plugged: map[string]bool{}, configured: map[string][]byte{"/vnf-agent/vpp1/config/other": {}}}
	handler, err := embedding.NewPolicyHandler(node, func(pod api.PodID) []string {
		if !h.plugged[pod.Name] {
			return nil
		}
		return []string{"tap-" + pod.Name}
	})
	if err != nil {
		t.Fatal(err)
	}
	resync := embedding.Event{Resync: true, Objects: objects(t, "friend")}
	steps := []struct {
		name string
		do   func() ([]embedding.Operation, error)
		want []string
	}{
		{"nobody is plugged in", func() ([]embedding.Operation, error) { return handler.Handle(t.Context(), resync) }, nil},
		{"the server is", func() ([]embedding.Operation, error) {
			h.plugged["server"] = true
			return handler.Plugged(t.Context())
		}, []string{"put sluice-reflect", "put sluice-table-1"}},
		{"an equal resync", func() ([]embedding.Operation, error) { return handler.Handle(t.Context(), resync) }, nil},
		{"another policy", func() ([]embedding.Operation, error) {
			return handler.Handle(t.Context(), embedding.Event{Objects: objects(t, "stranger")[1:2]})
		}, []string{"put sluice-table-1"}},
		{"one key is lost", func() ([]embedding.Operation, error) {
			delete(h.configured, aclKeys+"sluice-table-1")
			return handler.Heal(t.Context(), h.configured)
		}, []string{"put sluice-table-1"}},
		{"the policy is gone", func() ([]embedding.Operation, error) {
			gone := model.Delta{ID: objects(t, "stranger")[1].ID}
			return handler.Handle(t.Context(), embedding.Event{Objects: []model.Delta{gone}})
		}, []string{"delete sluice-table-1", "delete sluice-reflect"}},
	}
	for _, s := range steps {
		if d := cmp.Diff(s.want, h.apply(s.do())); d != "" {
			t.Errorf("%s (-want +got):\n%s", s.name, d)
		}
	}
	if left := slices.Collect(maps.Keys(h.configured)); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
	if err := handler.Close(); err != nil {
		t.Fatal(err)
	}
}
