package node

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/binapi/session"
	"go.fd.io/govpp/core"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	renderer "github.com/sluice-net/sluice/renderer/session"
)

var (
	web = api.PodID{Namespace: "demo", Name: "web"}
	db  = api.PodID{Namespace: "demo", Name: "db"}
)

// withHostStack starts a node whose dataplane has both ACLs and session rules.
func withHostStack(t *testing.T) (*Node, *VswitchStack) {
	t.Helper()
	sw := &Vswitch{}
	stack := &VswitchStack{Of: sw}
	n, err := New(Config{Name: "node-1", Log: slog.New(slog.DiscardHandler), Backends: []Backend{sw, stack}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
	if err := n.Start(); err != nil {
		t.Fatal(err)
	}
	return n, stack
}

func shop(t *testing.T) model.Changes {
	t.Helper()
	return model.Changes{Resync: true, Revision: 1, Deltas: puts(t,
		running("web", "node-1", "web", "10.0.1.1"), running("db", "node-1", "db", "10.0.1.2"), running("batch", "node-1", "batch", "10.0.1.3"), allow("web", "db", 5432))}
}

func TestHostStackAndACLsEnforceTogether(t *testing.T) {
	n, stack := withHostStack(t)
	sw := stack.Of
	fromWeb, fromBatch := sw.Switch.AddNamespace(renderer.NamespaceID(web)), sw.Switch.AddNamespace("demo/batch")
	toDB := sw.Switch.AddNamespace(renderer.NamespaceID(db))
	if err := n.Apply(t.Context(), shop(t)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		namespace uint32
		flow      api.Flow
		want      api.Action
	}{
		{fromWeb, tcp("10.0.1.1", "10.0.1.2", 5432), api.Permit},
		{fromWeb, tcp("10.0.1.1", "10.0.1.2", 22), api.Deny},
		{fromBatch, tcp("10.0.1.3", "10.0.1.2", 5432), api.Deny},
		{fromBatch, tcp("10.0.1.3", "198.51.100.7", 443), api.Permit},
	} {
		packet, connection := sw.Probe(tc.flow).Verdict, sw.Switch.Connect(tc.namespace, tc.flow).Action
		if packet != tc.want || connection != tc.want {
			t.Errorf("%s: acl says %s, session %s, want %s", tc.flow, packet, connection, tc.want)
		}
	}
	if got := sw.Switch.Accept(toDB, tcp("198.51.100.7", "10.0.1.2", 5432)).Action; got != api.Deny {
		t.Errorf("from beyond the node: %s, want deny", got)
	}
	if r := n.Plugin.Renderers; len(r) != 2 || stack.Session.NotApplicable(tcp("10.0.1.1", "10.0.1.2", 22)) != "" || stack.Session.NotApplicable(api.Flow{Protocol: api.ICMP}) == "" {
		t.Errorf("%d renderers, or the session renderer abstains from what it decides", len(r))
	}
}

func TestHostStackFailureDoesNotDelayACLs(t *testing.T) {
	n, stack := withHostStack(t)
	sw := stack.Of
	conn, err := core.Connect(sw.Switch.Adapter())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Disconnect()
	// A VPP whose session layer runs without rules.
	_, err = session.NewServiceClient(conn).SessionEnableDisableV2(t.Context(), &session.SessionEnableDisableV2{RtEngineType: session.RT_BACKEND_ENGINE_API_NONE})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	done := make(chan error, 1)
	go func() { done <- n.Apply(ctx, shop(t)) }() // waits for both
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	flow := tcp("10.0.1.3", "10.0.1.2", 5432)
	for !sw.Has(flow.Dst) || sw.Probe(flow).Verdict != api.Deny || !strings.Contains(fmt.Sprint(stack.Session.State().Err), "rt-backend rule-table") {
		select {
		case <-tick.C:
		case err := <-done:
			t.Fatalf("%v; acl says %s, session %q", err, sw.Probe(flow).Verdict, fmt.Sprint(stack.Session.State().Err))
		}
	}
	cancel()
	if err := <-done; err == nil {
		t.Error("both renderers are said to enforce")
	}
}
