package policy

import (
	"testing"
	"testing/synctest"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/renderertest"
)

// TestPluginCountsRevisionsOfNewStore: a store that begins anew has lower revisions than the one
// whose state is in force, for a long time.
func TestPluginCountsRevisionsOfNewStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := renderertest.NewRecorder("one", t)
		source := &channelSource{changes: make(chan model.Changes, 2)}
		p := start(t, Deps{Renderers: []renderer.Renderer{r}, Source: source})
		send := func(ch model.Changes, revision int64) {
			t.Helper()
			ch.Revision = revision
			source.changes <- ch
			synctest.Wait()
			if s := p.Status(); s.Revision != revision || s.Seen != revision {
				t.Errorf("revision %d is enforced, and %d was seen, want %d", s.Revision, s.Seen, revision)
			}
		}
		send(shop(t), 31)
		send(shop(t), 13)
		send(changes(t, false, pod(9, "other", true)), 14)
		source.changes <- deletion(model.KindPod, "pod-9") // a change without a revision of its own
		synctest.Wait()
		if s := p.Status(); s.Revision != 14 {
			t.Errorf("a change of an older revision led to %d", s.Revision)
		}
	})
}
