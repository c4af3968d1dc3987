package reflector

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// metric returns the line of a metric; "" when there is none.
func (r *Reflector) metric(t *testing.T, name string) string {
	t.Helper()
	_, page := r.page(t, "/metrics")
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, name+" ") {
			return strings.TrimSpace(line)
		}
	}
	return ""
}

func TestNodesWithoutAgentAreThoseThatDoNotReport(t *testing.T) {
	r := unanswered(t)
	for _, node := range []string{"node-1", "node-2", "node-10"} {
		r.put(t, model.Key(r.cfg.EtcdPrefix, model.ID{Kind: model.KindNode, Name: node}), []byte("x"))
	}
	r.report(t, "node-1", model.Level)
	r.report(t, "gone", model.Level)
	got, err := r.nodesWithoutAgent(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"node-10", "node-2"}; !slices.Equal(got, want) {
		t.Errorf("nodes without an agent are %q, want %q", got, want)
	}
	if m := r.metric(t, "sluice_ksr_nodes_without_agent"); m != "" {
		t.Errorf("a replica that stands by has %s", m)
	}
}

func TestReflectorCountsNodesWithoutAgent(t *testing.T) {
	r := ledBy(t, func(r *Reflector) {
		r.report(t, "node-1", model.Level)
		nodes := []proto.Message{&model.Node{Name: "node-1"}, &model.Node{Name: "node-2"}}
		if err := r.mirror.Replace(model.KindNode, nodes, nil); err != nil {
			t.Fatal(err)
		}
	})
	programs.Eventually(t, func() error {
		if got := r.metric(t, "sluice_ksr_nodes_without_agent"); got != "sluice_ksr_nodes_without_agent 1" {
			return fmt.Errorf("the metric is %q", got)
		}
		return nil
	})
}
