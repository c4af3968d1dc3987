package mirror

import (
	"slices"
	"testing"

	"github.com/sluice-net/sluice/renderer"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries"
	"github.com/sluice-net/sluice/renderer/acl/internal/entries/entriestest"
)

func TestFromRulesSurvivesWireFormat(t *testing.T) {
	entries := append(append(entries.Infra(renderer.Infra{}), entries.EverythingOwned()...), entriestest.Many(3, -1).Entries...)
	if got := FromRules(toRules(entries)); !slices.Equal(got, entries) {
		t.Errorf("got %v, want %v", got, entries)
	}
}
