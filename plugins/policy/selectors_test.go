package policy

import (
	"fmt"
	"testing"
	"testing/synctest"

	"google.golang.org/protobuf/proto"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// allowAll returns a policy with one rule for each of some apps.
func allowAll(name, to string, port uint32, apps ...string) *model.NetworkPolicy {
	p := allow(name, "", to, port)
	p.Ingress = nil
	for _, app := range apps {
		p.Ingress = append(p.Ingress, allow(name, app, to, port).Ingress...)
	}
	return p
}

// TestPluginServesOthersWhileSelectorsAreEvaluated: a policy with many new selectors takes several
// transactions. Until then a pod that it selects keeps its rules and a new one is blocked; the
// policy of another tenant, which comes later, is applied first.
func TestPluginServesOthersWhileSelectorsAreEvaluated(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		source := &channelSource{changes: make(chan model.Changes, 2)}
		send := func(revision int64, ch model.Changes) {
			ch.Revision = revision
			source.changes <- ch
		}
		verdict := func(from, to int) api.Action { return r.Verdict(web(addr(from), addr(to))) }
		transactions, served, done := 0, 0, 0
		after := func(s Status) {
			transactions++
			switch {
			case s.Seen == 2 && transactions == 2:
				send(3, changes(t, false, allow("urgent", "front", "small", 80)))
			case served == 0 && verdict(4, 2) == api.Deny:
				served = transactions
				if s.Waiting != 2 || s.InSync() || s.Revision != 1 {
					t.Errorf("while pods wait: %+v", s)
				}
				if verdict(1, 0) != api.Permit || verdict(4, 0) != api.Deny {
					t.Error("a pod that waits does not have its old rules")
				}
				if verdict(1, 3) != api.Deny || verdict(4, 3) != api.Deny {
					t.Error("a new pod that waits is not blocked")
				}
			case done == 0 && verdict(4, 0) == api.Permit:
				done = transactions
			}
		}
		p := start(t, Deps{Renderers: []renderer.Renderer{r}, Source: source, SelectorWork: 1, Observer: Observer{Transaction: after}})
		send(1, changes(t, true, ns(), pod(0, "web", true), pod(1, "front", false), pod(2, "small", true), allow("old", "front", "web", 80)))
		synctest.Wait()
		var apps []string
		for i := range 20 {
			apps = append(apps, fmt.Sprint("app-", i))
		}
		send(2, changes(t, false, allowAll("large", "web", 80, apps...), pod(3, "web", true), pod(4, "app-19", false)))
		synctest.Wait()
		pass()
		if served != 3 || done < 20 {
			t.Errorf("the other tenant was served in transaction %d, want 3, the large policy in %d", served, done)
		}
		if verdict(4, 0) != api.Permit || verdict(4, 3) != api.Permit || verdict(1, 3) != api.Permit {
			t.Error("the large policy is not in force in the end")
		}
		if s := p.Status(); s.Waiting != 0 || !s.InSync() || s.Revision != 3 {
			t.Errorf("in the end: %+v", s)
		}
	})
}

// TestPluginFirstStateIsWhole: the first state is one transaction, however many selectors it has.
func TestPluginFirstStateIsWhole(t *testing.T) {
	p, rs := startRecorded(t, Deps{SelectorWork: 1}, "one")
	objects := []proto.Message{ns(), pod(0, "web", true), allowAll("large", "web", 80, "a", "b", "c", "d")}
	mustApply(t, p, changes(t, true, objects...))
	if n := rs[0].Commits(); n != 1 {
		t.Errorf("%d commits, want 1", n)
	}
}
