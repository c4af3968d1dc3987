package policy

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/plugins/policy/internal/configurator"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// crowded returns local pods with one policy each, with so many rules that every pod is a batch of
// its own.
func crowded(t testing.TB, pods int) (state, policies model.Changes) {
	objects := []proto.Message{ns(), pod(100, "small", true)}
	var large []proto.Message
	for i := range pods {
		app := fmt.Sprint("large-", i)
		objects = append(objects, pod(i, app, true))
		p := allow(app, "front", app, 1)
		for port := range uint32(configurator.BatchPairs + 1) {
			p.Ingress[0].Ports = append(p.Ingress[0].Ports, &model.NetworkPolicy_Port{Protocol: model.Protocol_PROTOCOL_TCP, Port: &model.NetworkPolicy_Port_Number{Number: 3 + 3*port}})
		}
		large = append(large, p)
	}
	return changes(t, true, objects...), changes(t, false, large...)
}

// TestPluginLooksForChangesBetweenBatches: a policy of another tenant does not wait until the lists
// of one tenant are generated, and nothing counts as enforced before its batch.
func TestPluginLooksForChangesBetweenBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		source := &channelSource{changes: make(chan model.Changes, 2)}
		p := start(t, Deps{Renderers: []renderer.Renderer{r}, Source: source})
		state, policies := crowded(t, 5)
		state.Revision, policies.Revision = 1, 2
		source.changes <- state
		synctest.Wait()

		urgent := changes(t, false, allow("urgent", "front", "small", 80))
		urgent.Revision = 3
		var during Status
		batches, when := 0, -1
		r.SetHook(func(context.Context) error {
			if batches++; batches == 1 {
				source.changes <- urgent
			}
			if when < 0 && r.Pods()[podID(100)].Egress != nil {
				when, during = batches, p.Status()
			}
			return nil
		})
		source.changes <- policies
		synctest.Wait()
		pass()
		if batches != 6 {
			t.Errorf("%d commits, want one for the sets and one for each large list", batches)
		}
		if when != 3 { // the hook is called before the commit that it belongs to
			t.Errorf("what is urgent was there before commit %d, want 3", when)
		}
		if during.Waiting == 0 || during.InSync() || during.Revision != 1 {
			t.Errorf("while pods wait: %+v", during)
		}
		if s := p.Status(); s.Waiting != 0 || !s.InSync() || s.Revision != 3 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

// TestHandlerLeavesNoPodWaiting: no pod waits at the end, unless the context ends earlier.
func TestHandlerLeavesNoPodWaiting(t *testing.T) {
	r := renderertest.NewRecorder("one", t)
	h := NewHandler(Deps{Node: node, Renderers: []renderer.Renderer{r}})
	if err := h.Init(); err != nil {
		t.Fatal(err)
	}
	state, policies := crowded(t, 3)
	if err := h.Resync(t.Context(), state.Deltas); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	r.SetHook(func(context.Context) error { cancel(); return nil })
	if err := h.Update(ctx, policies.Deltas); err != nil && ctx.Err() == nil {
		t.Fatal(err)
	}
	if s := h.Status(); s.Waiting == 0 || h.RetryAt().IsZero() {
		t.Fatalf("a context ended, and %d pods wait until %v", s.Waiting, h.RetryAt())
	}
	r.SetHook(nil)
	if err := h.Retry(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := h.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	if s.Status.Waiting != 0 || s.Status.Revision != 2 || !h.RetryAt().IsZero() {
		t.Errorf("in the end: %+v", s.Status)
	}
	for _, pod := range s.Pods {
		if pod.Waiting || pod.ID != podID(100) && len(pod.Policies) != 1 {
			t.Errorf("pod %s waits (%t), and has policies %v", pod.ID, pod.Waiting, pod.Policies)
		}
	}
}
