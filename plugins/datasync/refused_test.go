package datasync_test

import (
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/datasync"
	"github.com/sluice-net/sluice/tests/lab/etcd/inprocess"
)

// TestWatcherKeepsPolicyWhoseNewestCannotBeRead: a value that decodes, and does not say which pods
// it is for, replaces no policy that is in force. Without one it closes what it may select.
func TestWatcherKeepsPolicyWhoseNewestCannotBeRead(t *testing.T) {
	unknown := &model.LabelSelector{MatchExpressions: []*model.LabelSelector_Requirement{{Key: "app", Operator: 9}}}
	all := &model.ClusterPolicy_Pods{Namespaces: &model.LabelSelector{MatchLabels: []*model.Label{{Key: "a", Value: "b"}}}, Pods: &model.LabelSelector{}}
	deny := []*model.ClusterPolicy_Rule{{Action: model.ClusterPolicy_ACTION_DENY, AnyPort: true}}
	for name, c := range map[string]struct{ good, bad, closed proto.Message }{
		"NetworkPolicy": {
			&model.NetworkPolicy{Namespace: "shop", Name: "p", IsolatesIngress: true},
			&model.NetworkPolicy{Namespace: "shop", Name: "p", IsolatesIngress: true, PodSelector: unknown, Ingress: []*model.NetworkPolicy_Rule{{}}},
			&model.NetworkPolicy{Namespace: "shop", Name: "p", IsolatesIngress: true, PodSelector: &model.LabelSelector{},
				Refused: `spec.podSelector: the requirement of "app" has no known operator: 9`},
		},
		"AdminNetworkPolicy": {
			&model.ClusterPolicy{Kind: 1, Name: "p", Tier: 1, Subject: all, Ingress: deny},
			&model.ClusterPolicy{Kind: 1, Name: "p", Tier: 1, Subject: &model.ClusterPolicy_Pods{Namespaces: all.Namespaces, Pods: unknown}, Ingress: deny},
			&model.ClusterPolicy{Kind: 1, Name: "p", Tier: 1, Subject: all, Ingress: deny,
				Refused: `spec.subject: the requirement of "app" has no known operator: 9`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			client := inprocess.Start(t, embedded.Config{}).Client()
			write(t, client, state{}.add(c.good))
			cfg := datasync.Config{Store: client}
			old := run(t, cfg)
			old.reach(t, state{}.add(c.good))
			write(t, client, state{}.add(c.bad, newPod("a", "n1")))
			old.reach(t, state{}.add(c.good, newPod("a", "n1")))
			if p := <-old.problems; p.Object == "" {
				t.Errorf("the problem is %+v", p)
			}
			old.await(t, "one problem", func(s datasync.Status) bool { return s.Problems == 1 })
			young := run(t, cfg)
			young.reach(t, state{}.add(c.closed, newPod("a", "n1")))
			write(t, client, state{}.add(c.good))
			young.reach(t, state{}.add(c.good, newPod("a", "n1")))
			old.await(t, "no problem", func(s datasync.Status) bool { return s.Problems == 0 })
		})
	}
}
