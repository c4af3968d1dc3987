package ligato_test

import (
	"strings"
	"testing"

	"github.com/sluice-net/sluice/api/model"
	"github.com/sluice-net/sluice/renderer"
)

// TestCheckShowsWhatDiffersFromThePublishedACLs has another program take away, change and add keys.
func TestCheckShowsWhatDiffersFromThePublishedACLs(t *testing.T) {
	s := open(t, shopPods...)
	check := func() string {
		objects, drift, err := s.r.Check(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if objects < 3 {
			t.Errorf("%d objects were read", objects)
		}
		return strings.Join(drift, "\n")
	}
	if _, _, err := s.r.Check(t.Context()); err == nil {
		t.Error("a renderer without an Apply is checked")
	}
	commit(t, s, true, shop)
	if drift := check(); drift != "" {
		t.Errorf("drift %q", drift)
	}
	change := func(puts []model.Entry, deletes ...string) {
		if err := etcd.Write(t.Context(), puts, deletes); err != nil {
			t.Fatal(err)
		}
	}
	key := func(name string) string { return s.r.Prefix() + name }
	change([]model.Entry{{Key: key("sluice-table-2"), Value: []byte("{}")}, {Key: key("sluice-\x1b[2J"), Value: []byte("{}")}, {Key: key("theirs"), Value: []byte("{}")}}, key("sluice-table-1"))
	want := "acl sluice-table-1 is gone\nacl sluice-table-2 has another value\nacl \"sluice-\\x1b[2J\" was not published by this agent"
	for range 2 {
		if drift := check(); drift != want {
			t.Errorf("drift\n%s\nwant\n%s", drift, want)
		}
	}
	change(nil, key("theirs"))
	s.r.Invalidate()
	commit(t, s, false, func(*renderer.Changes) {})
	if drift := check(); drift != "" {
		t.Errorf("after the next commit: %q", drift)
	}
}
