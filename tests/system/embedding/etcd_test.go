package embedding

import (
	"errors"
	"log/slog"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/docs/examples/embedding"
	"github.com/sluice-net/sluice/internal/kvstore/embedded"
	"github.com/sluice-net/sluice/plugins/kvstore"
	"github.com/sluice-net/sluice/tests/lab/marked"
	"github.com/sluice-net/sluice/tests/lab/programs"
)

// entries are the objects as they are in etcd, with the marker of a store that is whole.
func entries(t *testing.T, objects []model.Delta) []model.Entry {
	t.Helper()
	out := []model.Entry{marked.Marker(model.DefaultPrefix, 1)}
	for _, o := range objects {
		value, err := model.Encode(o.Value)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, model.Entry{Key: model.Key(model.DefaultPrefix, o.ID), Value: value})
	}
	return out
}

// TestAgentFollowsEtcd of a real server, to which objects come after the agent.
func TestAgentFollowsEtcd(t *testing.T) {
	quiet := slog.New(slog.DiscardHandler)
	server, err := embedded.Start(t.Context(), embedded.Config{ClientURL: "http://127.0.0.1:0", Log: quiet})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	v := startVPP(t)
	a, err := embedding.NewAgent(node, v.socket, quiet)
	if err != nil {
		t.Fatal(err)
	}
	err = a.Follow(kvstore.Config{Endpoints: server.Endpoints()}, quiet)
	if err = errors.Join(err, a.Start(), server.Client().Write(t.Context(), entries(t, objects(t, "friend")), nil)); err != nil {
		t.Fatal(err)
	}
	programs.Eventually(t, func() error {
		if v.permits("stranger", "server", 80) {
			return errors.New("policy is not enforced")
		}
		if !v.permits("friend", "server", 80) {
			return errors.New("the server is closed to its friend")
		}
		return nil
	})
	v.check(t, "friend", "stranger")
	if err := a.Stop(); err != nil {
		t.Fatal(err)
	}
	v.check(t, "friend", "stranger") // without the agent
}
