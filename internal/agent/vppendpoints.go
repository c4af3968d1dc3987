package agent

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/endpoints"
	"github.com/sluice-net/sluice/endpoints/wire"
	"github.com/sluice-net/sluice/internal/serve"
	"github.com/sluice-net/sluice/renderer/acl"
	"github.com/sluice-net/sluice/renderer/vpp"
)

// broadcast wakes all who wait. Its zero value is ready.
type broadcast struct {
	mu   sync.Mutex
	next chan struct{} // nil while nobody waits
}

// wait returns a channel that the next wake closes.
func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next == nil {
		b.next = make(chan struct{})
	}
	return b.next
}

func (b *broadcast) wake() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.next != nil {
		close(b.next)
		b.next = nil
	}
}

// vppEndpoint answers a CNI plugin that made or tagged an interface of VPP.
func (a *Agent) vppEndpoint(w http.ResponseWriter, r *http.Request) {
	if a.node.ACL == nil || a.cfg.isDev() {
		serve.Say(w, http.StatusNotFound, "this agent does not enforce in VPP (--renderers acl)\n")
		return
	}
	v, err := readVPP(r)
	if err != nil {
		serve.Say(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	answer(w, a.awaitVPP(r.Context(), v), nil)
}

func readVPP(r *http.Request) (v wire.VPP, err error) {
	q := r.URL.Query()
	v = wire.VPP{Interface: q.Get("interface"), Namespace: q.Get("namespace"), Name: q.Get("name"), Until: q.Get("until")}
	if v.Timeout, err = time.ParseDuration(q.Get("timeout")); err != nil {
		return v, fmt.Errorf("timeout %q: want a duration like 5s", q.Get("timeout"))
	}
	return v, v.Check()
}

// awaitVPP has the renderer look at the interfaces of VPP, and returns what it did with one, when that
// is what is waited for or the time is over.
func (a *Agent) awaitVPP(ctx context.Context, v wire.VPP) wire.Endpoint {
	ctx, cancel := context.WithTimeout(ctx, min(v.Timeout, wire.MaxTimeout))
	defer cancel()
	for ticket := a.node.ACL.Ask(); ; {
		changed := a.transactions.wait() // before it is asked, so that nothing is missed
		b, known := a.node.ACL.Bound(v.Interface, ticket)
		e := vppEndpointOf(v, b, known)
		if e.State == wire.Enforced || e.State == v.Until {
			return e
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return e
		}
	}
}

// vppEndpoints returns the interfaces of pods in VPP, by index.
func (a *Agent) vppEndpoints() (out []wire.Endpoint) {
	if a.lives == nil {
		return nil
	}
	for _, b := range a.node.ACL.Endpoints() {
		e := wire.Endpoint{Interface: b.Name, Index: b.Index, Pod: b.Pod.String(), UID: b.UID, State: b.State, Source: endpoints.SourceKey.String(), Since: b.Since, Reason: b.Reason}
		if b.Pod == (api.PodID{}) {
			e.Pod, _ = strings.CutPrefix(b.Tag, vpp.PodTagPrefix)
		}
		out = append(out, e)
	}
	return out
}

func vppEndpointOf(v wire.VPP, b acl.Bound, known bool) wire.Endpoint {
	e := wire.Endpoint{Interface: v.Interface, Pod: v.Namespace + "/" + v.Name, State: wire.Pending, Source: "key", Reason: b.Reason}
	switch {
	case !known:
		e.State, e.Reason = wire.Unknown, "the agent has not found it in VPP as a pod's yet"
	case b.Reason != "":
	case b.Pod.String() != e.Pod:
		e.Reason = "it is that of pod " + b.Pod.String()
	default:
		e.State = wire.Enforced
	}
	return e
}
