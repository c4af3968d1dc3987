package session

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"go.fd.io/govpp/adapter"
	"go.fd.io/govpp/binapi/session"

	"github.com/sluice-net/sluice/api"
	"github.com/sluice-net/sluice/internal/vswitch"
	"github.com/sluice-net/sluice/internal/vswitch/vswitchtest"
)

// mute is a vswitch that does not answer requests that contain a text.
type mute struct {
	adapter.VppAPI
	text string
}

func (m mute) SendMsg(context uint32, data []byte) error {
	if strings.Contains(string(data), m.text) {
		return nil
	}
	return m.VppAPI.SendMsg(context, data)
}

// TestLinkDropsConnectionAfterMissingAnswer sends two changes at once: the
// first is refused, the second is never answered.
func TestLinkDropsConnectionAfterMissingAnswer(t *testing.T) {
	sw := vswitchtest.New(t, vswitch.Options{})
	namespace := sw.AddNamespace("web")
	l, err := dial(Options{Adapter: mute{sw.Adapter(), "unheard"}, Timeout: 50 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	if _, _, err := l.Connect(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := l.enable(t.Context()); err != nil {
		t.Fatal(err)
	}
	l.local = session.SESSION_RULE_SCOPE_API_LOCAL
	rule := func(namespace uint32, tag string) *session.SessionRuleAddDel {
		at := place{netip.MustParsePrefix("10.0.0.0/8"), 80}
		return l.change(section{namespace: namespace, local: true, transport: api.TCP, own: everything(0)}, true, at, api.Deny, tag)
	}
	for _, tc := range []struct {
		tags      []string
		namespace uint32
		connected bool
	}{
		{[]string{"accepted"}, namespace, true},
		{[]string{"refused", "refused too"}, namespace + 1, true},
		{[]string{"refused", "unheard"}, namespace + 1, false},
	} {
		var changes []*session.SessionRuleAddDel
		for _, tag := range tc.tags {
			changes = append(changes, rule(tc.namespace, tag))
		}
		err := l.send(t.Context(), changes)
		if (err != nil) != (tc.namespace != namespace) {
			t.Errorf("%q: %v", tc.tags, err)
		}
		l.Failed(err)
		if l.Connected() != tc.connected {
			t.Errorf("%q: connected %t after %v, want %t", tc.tags, l.Connected(), err, tc.connected)
		}
	}
}
