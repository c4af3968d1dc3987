package policy

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestPromptBeforeFirstResyncCommitsNothing: a dataplane still enforces rules of an earlier
// run; an empty commit would remove them and open every pod.
func TestPromptBeforeFirstResyncCommitsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, rs := startRecorded(t, Deps{}, "one", "two")
		p.Prompt()
		synctest.Wait()
		for _, r := range rs {
			if r.Calls() != 0 {
				t.Errorf("%s committed %d times before it received any state", r.Name(), r.Calls())
			}
		}
		mustApply(t, p, shop(t))
		before := rs[1].Calls()
		p.Prompt()
		synctest.Wait()
		if got := rs[1].Calls(); got != before+1 {
			t.Errorf("after the resync a prompt caused %d commits, want 1", got-before)
		}
	})
}

// TestPromptDoesNotDelayRetries: something has changed, so what failed before may work now, and
// if not, it is retried soon.
func TestPromptDoesNotDelayRetries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		p := start(t, Deps{Renderers: []renderer.Renderer{r}})
		mustApply(t, p, shop(t))
		failing := errors.New("no interface")
		r.SetHook(func(context.Context) error { return failing })
		for range 10 {
			p.Prompt()
			synctest.Wait()
		}
		r.SetHook(nil)
		time.Sleep(2 * defaultMinBackoff) // the bubble's clock
		synctest.Wait()
		if s := p.Status(); !s.InSync() {
			t.Errorf("not tried again within twice the shortest pause: %+v", s.Renderers)
		}
	})
}

// TestPromptReadsAddressesOfNode gives the node another address: renderers receive it with
// the next prompt, and a prompt without a change sends nothing.
func TestPromptReadsAddressesOfNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var addrs atomic.Pointer[[]netip.Addr]
		addrs.Store(&[]netip.Addr{})
		p, rs := startRecorded(t, Deps{NodeAddresses: func() []netip.Addr { return *addrs.Load() }}, "one")
		mustApply(t, p, shop(t))
		before := rs[0].Sets()[api.NodeSet]
		gateway := netip.MustParseAddr("10.244.1.1")
		addrs.Store(&[]netip.Addr{gateway})
		p.Prompt()
		synctest.Wait()
		if now := rs[0].Sets()[api.NodeSet]; len(now) != len(before)+1 || !slices.Contains(now, netip.PrefixFrom(gateway, 32)) {
			t.Errorf("addresses of the node are %v, were %v", now, before)
		}
		addrs.Store(&[]netip.Addr{})
		mustApply(t, p, model.Changes{})
		if now := rs[0].Sets()[api.NodeSet]; !slices.Equal(now, before) {
			t.Errorf("addresses of the node are %v again, want %v", now, before)
		}
	})
}
